"""Streams drawn at random over what the frameworks do, for trying the iteration clock on many: ``draw(seed)``."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from greyhound.testdata.streams import Disturbances, Stream, iteration_seconds, make_stream, symbols_of
from greyhound.testdata.workloads import DDP, FSDP, Megatron, Workload

_LEAST_S, _MOST_S = 0.2, 8.0
_MOST_CALLS, _JOB_S = 400_000, 120
_UNEVEN = 5.0


@dataclass(frozen=True)
class Drawn:
    """A stream with what it was made of; it is read in pieces of ``pushed`` calls. kind: for tables."""

    kind: str
    workload: Workload
    disturbances: Disturbances
    stream: Stream
    pushed: int

    @property
    def period(self) -> int:
        """Calls of an iteration, or of the part that it consists of exactly, without anything in between."""
        if self.workload.ragged:
            return self.stream.period
        return _smallest(symbols_of(self.workload.iteration(np.random.default_rng(0))))


def draw(seed: int, iterations: int = 60) -> Drawn:
    """The stream of this number, at least so many iterations and two minutes unless these are very many calls."""
    rng = np.random.default_rng([seed, 0x6A])
    kind, workload = _workload(rng)
    what = replace(_disturbances(rng), uneven=_UNEVEN if np.random.default_rng([seed, 0x6B]).random() < 0.5 else 1.0)
    calls = len(workload.iteration(np.random.default_rng(0)))
    mean_s = float(np.exp(rng.uniform(np.log(_LEAST_S), np.log(_MOST_S))))
    count = max(min(max(iterations, int(_JOB_S / mean_s)), _MOST_CALLS // calls), 24)
    seconds = iteration_seconds(count, mean_s, seed=seed)
    stream = make_stream(workload, count, seconds, what, seed)
    pushed = int(np.clip(calls * rng.uniform(0.02, 1.5), 1, 4000))
    return Drawn(kind, workload, what, stream, pushed)


def _smallest(body: NDArray[np.uint64]) -> int:
    return next(p for p in range(1, len(body) + 1) if len(body) % p == 0 and (body == np.roll(body, p)).all())


def _workload(rng: np.random.Generator) -> tuple[str, Workload]:
    kinds = (_megatron, _interleaved, _experts, _sharded, _hybrid, _replicated)
    return kinds[int(rng.integers(len(kinds)))](rng)


def _micro_batches(rng: np.random.Generator, most: int = 64) -> int:
    """2 to 64, small ones as often as large ones."""
    return int(np.exp(rng.uniform(np.log(2), np.log(most + 1))))


def _megatron(rng: np.random.Generator) -> tuple[str, Workload]:
    pp = int(rng.choice([1, 2, 4, 8]))
    return "Megatron 1F1B", Megatron(
        tp=int(rng.choice([1, 2, 8])),
        dp=int(rng.choice([1, 2, 8])),
        pp=pp,
        stage=int(rng.integers(pp)),
        layers=int(rng.integers(1, 25)),
        micro_batches=_micro_batches(rng),
        buckets=int(rng.integers(1, 9)),
        distributed_optimizer=bool(rng.integers(2)),
        loss_per_micro_batch=bool(rng.integers(2)),
    )


def _interleaved(rng: np.random.Generator) -> tuple[str, Workload]:
    pp = int(rng.choice([2, 4]))
    return "Megatron interleaved", Megatron(
        tp=int(rng.choice([1, 2, 8])),
        dp=int(rng.choice([1, 2])),
        pp=pp,
        stage=int(rng.integers(pp)),
        layers=int(rng.integers(1, 9)),
        micro_batches=pp * _micro_batches(rng, 64 // pp),
        buckets=int(rng.integers(1, 5)),
        distributed_optimizer=bool(rng.integers(2)),
        chunks=int(rng.choice([2, 3, 4])),
    )


def _experts(rng: np.random.Generator) -> tuple[str, Workload]:
    pp = int(rng.choice([1, 2]))
    return "mixture of experts", Megatron(
        tp=int(rng.choice([1, 2])),
        dp=2,
        pp=pp,
        stage=int(rng.integers(pp)),
        layers=int(rng.integers(1, 7)),
        micro_batches=_micro_batches(rng, 32),
        distributed_optimizer=bool(rng.integers(2)),
        ep=int(rng.choice([2, 4, 8])),
        grouped=bool(rng.integers(2)),
    )


def _fsdp(rng: np.random.Generator, replicas: int) -> Workload:
    micro_batches = int(rng.choice([1, _micro_batches(rng)]))
    no_sync = bool(rng.integers(2))
    # Without an end of its own an accumulated iteration can't be told from its micro-batches.
    clip = bool(rng.integers(2)) or (micro_batches > 1 and not no_sync)
    return FSDP(
        layers=int(rng.integers(2, 61)),
        micro_batches=micro_batches,
        no_sync=no_sync,
        replicas=replicas,
        clip=clip,
        layer_kinds=int(rng.choice([1, 1, 2, 4])),
        root=bool(rng.integers(4)),
    )


def _sharded(rng: np.random.Generator) -> tuple[str, Workload]:
    return "FSDP", _fsdp(rng, 1)


def _hybrid(rng: np.random.Generator) -> tuple[str, Workload]:
    return "HSDP", _fsdp(rng, 2)


def _replicated(rng: np.random.Generator) -> tuple[str, Workload]:
    buckets = int(rng.integers(1, 31))
    return "DDP", DDP(buckets, equal=int(rng.integers(buckets + 1)), logged=bool(rng.integers(2)))


def _disturbances(rng: np.random.Generator) -> Disturbances:
    evaluate = rng.random() < 0.4
    return Disturbances(
        evaluate_every=int(rng.integers(5, 31)) if evaluate else 0,
        evaluate_batches=int(rng.integers(1, 41)),
        pause_every=int(rng.integers(8, 31)) if rng.random() < 0.25 else 0,
        log_every=int(rng.choice([5, 10, 20, 50, int(rng.integers(2, 31))])) if rng.random() < 0.4 else 0,
        reordered=0.05 if rng.random() < 0.2 else 0.0,
        step_share=float(rng.uniform(0.02, 0.3)),
    )
