"""Labelled streams of NCCL calls: what one rank issues over many iterations, when, and the truth about it.

    stream = make_stream(Megatron(tp=8, dp=2, pp=4, stage=1), iterations=100, evaluate_every=25, reordered=0.05)
    clock.push(stream.symbols, stream.t_ns)

The timing model: iteration i lasts ``seconds[i]``; its k-th call comes at the same share of it each time. So the truth
is exact: an iteration ends with its last call. Evaluations and pauses (a checkpoint) lie between two iterations and
are no part of either's calls, but of the time from end to end: those iterations are marked ``disturbed``.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from greyhound.testdata.workloads import CALL_DTYPE, Calls, Workload
from greyhound.trace import layout
from greyhound.trace.records import RECORD_DTYPE, symbols

_START_S = 1.0
_DEFAULT_SEED = 0
_HALF, _ODD = np.uint64(32), np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Stream:
    """Calls with their times, and the truth.

    calls: CALL_DTYPE, t_ns: CLOCK_MONOTONIC ns, symbols: as the analyzer compares them; all of the same length.
    ends: index of each iteration's last call (before any reordering), end_ns: its time. seconds: from the end of the
    iteration before (of the start-up calls for the first). disturbed: an evaluation or a pause is in that time.
    period: calls in an iteration (the most frequent number, should it vary).
    """

    calls: Calls
    t_ns: NDArray[np.int64]
    symbols: NDArray[np.uint64]
    ends: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    seconds: NDArray[np.float64]
    disturbed: NDArray[np.bool_]
    period: int

    def records(self) -> NDArray[np.void]:
        """As records of a ring (RECORD_DTYPE), to be written into one."""
        return _records(self.calls, self.t_ns)


@dataclass(frozen=True)
class Disturbances:
    """What interrupts the iterations; a step of 0 means never.

    Every ``evaluate_every`` iterations an evaluation of ``evaluate_batches``, each ``evaluate_s`` long; every
    ``pause_every`` a pause of ``pause_s`` without calls; every ``log_every`` one more call (of 64 bytes) at the end.
    ``reordered``: this share of the calls comes up to ``reorder_distance`` places late, as between two threads.
    ``step_share``: each iteration begins with this share of its time without calls, the optimiser's step of the one
    before. ``uneven``: the time before a call is by its kind (and size, unless sizes are ragged) up to so many times
    longer or shorter; 1: all are even.
    """

    evaluate_every: int = 0
    evaluate_batches: int = 20
    evaluate_s: float = 0.25
    pause_every: int = 0
    pause_s: float = 20.0
    log_every: int = 0
    reordered: float = 0.0
    reorder_distance: int = 3
    step_share: float = 0.0
    uneven: float = 1.0


def iteration_seconds(count: int, mean_s: float = 1.0, jitter: float = 0.03, seed: int = 0) -> NDArray[np.float64]:
    """Times of ``count`` iterations, log-normal about ``mean_s``."""
    return np.asarray(mean_s * np.exp(np.random.default_rng(seed).normal(0, jitter, count)))


def make_stream(
    workload: Workload | list[Workload],
    iterations: int | list[int],
    seconds: NDArray[np.float64] | None = None,
    disturbances: Disturbances | None = None,
    seed: int = _DEFAULT_SEED,
) -> Stream:
    """The stream of one rank; several workloads follow each other, each for its number of iterations.

    ``seconds`` holds each iteration's time (default: 1 s with 3 % jitter). Equal arguments give equal streams.
    """
    phases = workload if isinstance(workload, list) else [workload]
    counts = iterations if isinstance(iterations, list) else [iterations]
    rng = np.random.default_rng(seed)
    what = disturbances or Disturbances()
    times_s = iteration_seconds(sum(counts), seed=seed) if seconds is None else np.asarray(seconds, dtype=np.float64)
    if len(times_s) != sum(counts) or len(phases) != len(counts):
        raise ValueError(f"{len(times_s)} times and {len(phases)} workloads for iterations {counts}")
    writer = _Writer(phases[0].start())
    number = 0
    for phase, count in zip(phases, counts, strict=True):
        body = phase.iteration(rng)
        for _ in range(count):
            if phase.ragged:
                body = phase.iteration(rng)
            number += 1
            calls = _with_log(body, what, number)
            writer.iteration(calls, float(times_s[number - 1]), what.step_share, _waits(calls, phase.ragged, what))
            _interrupt(writer, phase, what, number, rng)
    return writer.finish(what, rng)


def _with_log(body: Calls, what: Disturbances, number: int) -> Calls:
    if not what.log_every or number % what.log_every:
        return body
    extra = np.zeros(1, dtype=CALL_DTYPE)
    extra["op"], extra["comm"], extra["bytes"], extra["peer"] = layout.GH_OP_ALL_GATHER, 99, 64, -1
    return np.concatenate([body, extra])


def _waits(body: Calls, ragged: bool, what: Disturbances) -> NDArray[np.float64]:
    """The time before each call in relation to the others."""
    if what.uneven == 1:
        return np.ones(len(body))
    known = symbols_of(body)
    drawn = ((known >> _HALF) if ragged else known) * _ODD >> _HALF
    return np.asarray(what.uneven ** (2 * drawn.astype(np.float64) / 2**32 - 1))


def _interrupt(writer: "_Writer", phase: Workload, what: Disturbances, number: int, rng: np.random.Generator) -> None:
    if what.evaluate_every and number % what.evaluate_every == 0:
        calls = phase.evaluation(what.evaluate_batches, rng)
        writer.between(calls, what.evaluate_batches * what.evaluate_s)
    if what.pause_every and number % what.pause_every == 0:
        writer.between(np.empty(0, dtype=CALL_DTYPE), what.pause_s)


class _Writer:
    """Puts bodies one after the other and keeps the truth."""

    def __init__(self, start: Calls) -> None:
        self._now_s = _START_S
        self._calls = [start]
        self._times_s = [np.linspace(0, _START_S, len(start), endpoint=False)]
        self._length = len(start)
        self._ends: list[int] = []
        self._disturbed: list[bool] = []
        self._interrupted = False
        self._lengths: list[int] = []

    def _spread(self, body: Calls, seconds: float, step_share: float, waits: NDArray[np.float64]) -> None:
        self._calls.append(body)
        part = np.cumsum(waits) / (waits.sum() if len(body) else 1)
        self._times_s.append(self._now_s + (step_share + (1 - step_share) * part) * seconds)
        self._length += len(body)
        self._now_s += seconds

    def iteration(self, body: Calls, seconds: float, step_share: float, waits: NDArray[np.float64]) -> None:
        self._spread(body, seconds, step_share, waits)
        self._ends.append(self._length - 1)
        self._lengths.append(len(body))
        self._disturbed.append(self._interrupted)
        self._interrupted = False

    def between(self, body: Calls, seconds: float) -> None:
        self._spread(body, seconds, 0.0, np.ones(len(body)))
        self._interrupted = True

    def finish(self, what: Disturbances, rng: np.random.Generator) -> Stream:
        calls = np.concatenate(self._calls)
        t_ns = np.round(np.concatenate(self._times_s) * 1e9).astype(np.int64)
        if what.reordered > 0:
            calls = calls[_late(len(calls), what, rng)]
        ends = np.array(self._ends, dtype=np.int64)
        end_ns = t_ns[ends]
        lengths, often = np.unique(self._lengths, return_counts=True)
        return Stream(
            calls=calls,
            t_ns=t_ns,
            symbols=symbols_of(calls),
            ends=ends,
            end_ns=end_ns,
            seconds=np.diff(end_ns, prepend=int(_START_S * 1e9)) / 1e9,
            disturbed=np.array(self._disturbed),
            period=int(lengths[np.argmax(often)]),
        )


def _late(count: int, what: Disturbances, rng: np.random.Generator) -> NDArray[np.int64]:
    """An order in which a share of the calls comes late; the times stay with the places."""
    place = np.arange(count, dtype=np.float64)
    late = rng.random(count) < what.reordered
    place[late] += rng.integers(1, what.reorder_distance + 1, int(late.sum())) + 0.5
    return np.argsort(place, kind="stable")


def _records(calls: Calls, t_ns: NDArray[np.int64]) -> NDArray[np.void]:
    records = np.zeros(len(calls), dtype=RECORD_DTYPE)
    records["t_ns"] = t_ns
    for name in ("op", "comm", "bytes", "peer"):
        records[name] = calls[name]
    records["flags"] = np.where(calls["grouped"], layout.GH_REC_IN_GROUP, 0)
    return records


def symbols_of(calls: Calls) -> NDArray[np.uint64]:
    """The symbols of calls, in blocks: records are five times as large."""
    out = np.empty(len(calls), dtype=np.uint64)
    for at in range(0, len(calls), 1 << 16):
        block = calls[at : at + (1 << 16)]
        out[at : at + len(block)] = symbols(_records(block, np.zeros(len(block), dtype=np.int64)))
    return out
