"""A rank's profile from what its ring held in a window: calls, GPU timings, ends of iterations. Pure.

A rank works for itself (or idles) where none of its timed calls is under way. That is the gap before a call: from the
end of all calls that started earlier to its own start. Where only a part of the calls was timed, the gaps that are
known stand for those at the same place of other iterations.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from greyhound.localize.model import Communicator, RankProfile, TimedCall
from greyhound.trace import layout

LEAST_TIMED = 0.01  # of the calls; below, the GPU's times are as good as unknown
ABSURD_NS = 3600 * 1_000_000_000
MOST_ITERATIONS = 256
_MIX_1, _MIX_2, _MIX_3 = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_SHIFT_1, _SHIFT_2 = np.uint64(30), np.uint64(27)

Int64s = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


class NoProfile(ValueError):  # noqa: N818 - an answer rather than an error
    """Nothing can be said of this rank in this window; the text says why."""


@dataclass(frozen=True)
class RankFacts:
    """Whose calls they are; `work` is the fingerprint of its iteration, empty while unknown."""

    node: int
    key: str
    rank: int
    bus: str
    work: str


@dataclass(frozen=True)
class Window:
    """What a ring held: top-level records in any order (RECORD_DTYPE), GPU timings (TIMING_DTYPE), communicators
    (COMM_DTYPE), ends of iterations (CLOCK_MONOTONIC ns, growing); wall clock = CLOCK_MONOTONIC + `offset_ns`."""

    records: NDArray[np.void]
    timings: NDArray[np.void]
    comms: NDArray[np.void]
    ends_ns: Int64s
    offset_ns: int


@dataclass(frozen=True)
class _Calls:
    """In the order of their host's entry; where `known` is false, start and end are the host's."""

    rows: NDArray[np.void]
    entry_ns: Int64s
    start_ns: Int64s
    end_ns: Int64s
    known: Flags


def build(facts: RankFacts, window: Window, most_calls: int) -> RankProfile:
    """The profile, with at most `most_calls` calls: the same ones on all members of a communicator."""
    if len(window.ends_ns) < 2:
        raise NoProfile("no whole iteration in the window")
    if len(window.records) == 0:
        raise NoProfile("no call in the window")
    calls, timed = _timed(window)
    ends_ns = window.ends_ns[-(MOST_ITERATIONS + 1) :]
    own_s, host_s, boundary_s = _own(calls, ends_ns)
    comms = communicators(window.comms, np.unique(calls.rows["comm"]))
    chosen = _choose(calls, comms, most_calls)
    return RankProfile(
        **vars(facts),
        timed=timed,
        iteration_s=tuple((np.diff(ends_ns) / 1e9).tolist()),
        own_s=tuple(own_s.tolist()),
        host_s=tuple(host_s.tolist()),
        boundary_s=tuple(boundary_s.tolist()),
        comms=comms,
        calls=_as_calls(calls, chosen, window.offset_ns),
    )


def communicators(table: NDArray[np.void], used: NDArray[np.uint64]) -> tuple[Communicator, ...]:
    """Those of a ring's table that were used, destroyed ones included; pending ones have no members yet."""
    known = (table["state"] == layout.GH_COMM_LIVE) | (table["state"] == layout.GH_COMM_GONE)
    rows = table[known & (table["rank"] >= 0) & (table["size"] > 0) & np.isin(table["hash"], used)]
    found = {int(row["hash"]): Communicator(int(row["hash"]), int(row["size"]), int(row["rank"])) for row in rows}
    return tuple(found[number] for number in sorted(found))


def _timed(window: Window) -> tuple[_Calls, bool]:
    """The calls with their times on the GPU; where there are none, all with the host's, and False."""
    rows = window.records[np.argsort(window.records["t_ns"], kind="stable")]
    entry_ns = rows["t_ns"].astype(np.int64)
    return_ns = entry_ns + rows["host_ns"].astype(np.int64)
    start_ns, end_ns, known = _match(rows, window.timings)
    # The base event's error may put a start before its call, which can't be.
    start_ns = np.maximum(start_ns, entry_ns)
    known &= (end_ns >= start_ns) & (end_ns - entry_ns < ABSURD_NS)
    if known.mean() < LEAST_TIMED:
        return _Calls(rows, entry_ns, entry_ns, return_ns, np.ones(len(rows), bool)), False
    start_ns, end_ns = np.where(known, start_ns, entry_ns), np.where(known, end_ns, return_ns)
    return _Calls(rows, entry_ns, start_ns, end_ns, known), True


def _match(rows: NDArray[np.void], timings: NDArray[np.void]) -> tuple[Int64s, Int64s, Flags]:
    start_ns, end_ns = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
    if len(timings) == 0:
        return start_ns, end_ns, np.zeros(len(rows), bool)
    there = mix(timings["comm"], timings["seq"])
    order = np.argsort(there, kind="stable")
    wanted = mix(rows["comm"], rows["seq"])
    place = np.minimum(np.searchsorted(there[order], wanted), len(order) - 1)
    known = there[order][place] == wanted
    found = timings[order[place[known]]]
    start_ns[known] = found["start_ns"]
    end_ns[known] = found["start_ns"] + found["duration_ns"]
    return start_ns, end_ns, known


def mix(comm: NDArray[np.uint64], seq: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """A hash of (communicator, number on it) that looks random (splitmix64's finaliser)."""
    mixed: NDArray[np.uint64] = comm.astype(np.uint64) * _MIX_1 + seq.astype(np.uint64)
    mixed = (mixed ^ (mixed >> _SHIFT_1)) * _MIX_2
    mixed = (mixed ^ (mixed >> _SHIFT_2)) * _MIX_3
    return mixed ^ (mixed >> _SHIFT_1)


@dataclass(frozen=True)
class _Gaps:
    """The gap before each call, in the order of the calls: seconds, the part before the host came, whether it lies
    between two iterations, whether it is known."""

    own_s: Floats
    host_s: Floats
    boundary: Flags
    known: Flags


def _gaps(calls: _Calls, iteration: Int64s) -> _Gaps:
    count = len(calls.rows)
    timed = np.flatnonzero(calls.known)
    order = timed[np.argsort(calls.start_ns[timed], kind="stable")]
    later, earlier = order[1:], order[:-1]
    free_ns = np.maximum.accumulate(calls.end_ns[order])[:-1]
    gap_ns = np.maximum(calls.start_ns[later] - free_ns, 0)
    host_ns = np.clip(calls.entry_ns[later] - free_ns, 0, gap_ns)
    untimed = np.concatenate([[0], np.cumsum(~calls.known)])
    between = untimed[np.maximum(later, earlier)] - untimed[np.minimum(later, earlier)]
    own_s, host_s = np.zeros(count), np.zeros(count)
    boundary, known = np.zeros(count, bool), np.zeros(count, bool)
    own_s[later], host_s[later] = gap_ns / 1e9, host_ns / 1e9
    boundary[later] = iteration[earlier] < iteration[later]
    known[later] = between == 0
    return _Gaps(own_s, host_s, boundary, known)


def _own(calls: _Calls, ends_ns: Int64s) -> tuple[Floats, Floats, Floats]:
    """Own, host and boundary seconds of each iteration between two ends."""
    iteration = np.searchsorted(ends_ns, calls.entry_ns, side="left") - 1  # a call at its end belongs to it
    gaps = _gaps(calls, iteration)
    inside = (iteration >= 0) & (iteration < len(ends_ns) - 1)
    which = iteration[inside]
    counts = np.bincount(which, minlength=len(ends_ns) - 1)
    begins = np.concatenate([[0], np.cumsum(counts)])[:-1]
    place = np.arange(len(which)) - begins[which]
    known = gaps.known[inside]
    own_s = _filled(gaps.own_s[inside], known, place)
    host_s = _filled(gaps.host_s[inside], known, place)
    boundary = np.where(known, gaps.boundary[inside], place == 0)

    def total(values: Floats) -> Floats:
        return np.bincount(which, weights=values, minlength=len(counts)).astype(np.float64)

    return total(own_s), total(host_s), total(own_s * boundary)


def _filled(values: Floats, known: Flags, place: Int64s) -> Floats:
    """Unknown ones are given the mean of those known at the same place of an iteration, else of all."""
    if known.all() or not known.any():
        return values
    size = int(place.max()) + 1
    count = np.bincount(place[known], minlength=size)
    total = np.bincount(place[known], weights=values[known], minlength=size)
    means = np.where(count > 0, total / np.maximum(count, 1), values[known].mean())
    return np.where(known, values, means[place])


def _choose(calls: _Calls, comms: tuple[Communicator, ...], most: int) -> NDArray[np.intp]:
    """Indexes of at most `most` timed calls, in order.

    Each communicator gives those with the lowest hashes: what its members choose is alike, even where they may send
    different numbers of calls.
    """
    ids = np.array([comm.hash for comm in comms], dtype=np.uint64)
    there = np.flatnonzero(calls.known & np.isin(calls.rows["comm"], ids))
    hashes = mix(calls.rows["comm"][there], calls.rows["seq"][there])
    which = np.searchsorted(ids, calls.rows["comm"][there])
    order = np.lexsort((hashes, which))
    counts = np.bincount(which, minlength=len(ids))
    begins = np.concatenate([[0], np.cumsum(counts)])[:-1]
    place = np.arange(len(order)) - begins[which[order]]
    return np.sort(there[order[place < _level(counts, most)]])


def _level(counts: Int64s, most: int) -> int:
    """The largest quota of each with which all together stay within `most`."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if int(np.minimum(counts, middle).sum()) <= most:
            low = middle
        else:
            high = middle - 1
    return low


def _as_calls(calls: _Calls, chosen: NDArray[np.intp], offset_ns: int) -> tuple[TimedCall, ...]:
    rows = calls.rows[chosen]
    times = (values[chosen] + offset_ns for values in (calls.entry_ns, calls.start_ns, calls.end_ns))
    columns = [*(rows[name].tolist() for name in ("comm", "seq", "op", "bytes", "peer")), *(t.tolist() for t in times)]
    return tuple(TimedCall(*values) for values in zip(*columns, strict=True))
