"""All calls of all ranks as columns, cleaned: what localisation computes with. No rank is trusted to be sane."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from greyhound.localize.model import RankProfile, TimedCall
from greyhound.trace import layout

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SYMMETRIC = tuple(
    int(getattr(layout, f"GH_OP_{name}")) for name in ("ALL_REDUCE", "ALL_GATHER", "REDUCE_SCATTER", "ALL_TO_ALL")
)
"""Operations that no member leaves before all have come, so that their ends are about simultaneous."""
SEND, RECV, GROUP = int(layout.GH_OP_SEND), int(layout.GH_OP_RECV), int(layout.GH_OP_GROUP)

_LONGEST_S = 3600.0  # a call or gap beyond this is a broken clock, not a slow component


@dataclass(frozen=True)
class Calls:
    """One row a call. `rank` is the index of its profile; times in seconds since `base_ns` of the wall clock."""

    base_ns: int
    rank: Ints
    comm: NDArray[np.uint64]
    seq: Ints
    op: Ints
    bytes: Ints
    peer: Ints
    entry: Floats
    start: Floats
    end: Floats

    def __len__(self) -> int:
        return len(self.rank)

    @property
    def duration(self) -> Floats:
        """Seconds from start to end."""
        return self.end - self.start

    def where(self, rows: NDArray[np.bool_] | Ints) -> "Calls":
        """Some of the rows."""
        names = ("rank", "comm", "seq", "op", "bytes", "peer", "entry", "start", "end")
        return Calls(self.base_ns, *(getattr(self, name)[rows] for name in names))


def _base_ns(profiles: Sequence[RankProfile]) -> int:
    for profile in profiles:
        for call in profile.calls:
            if math.isfinite(call.start_ns):
                return int(call.start_ns)
    return 0


def _column(calls: Sequence[TimedCall], name: str, dtype: type, count: int) -> NDArray[np.generic]:
    return np.fromiter((getattr(call, name) for call in calls), dtype=dtype, count=count)


def _seconds(calls: Sequence[TimedCall], name: str, base_ns: int, count: int) -> Floats:
    return np.fromiter((getattr(call, name) - base_ns for call in calls), dtype=np.float64, count=count) / 1e9


def calls_of(profiles: Sequence[RankProfile]) -> Calls:
    """The calls of all profiles; those with impossible times (NaN, an end before the start, over an hour) left out."""
    base_ns = _base_ns(profiles)
    calls = [call for profile in profiles for call in profile.calls]
    count = len(calls)
    rank = np.repeat(np.arange(len(profiles)), [len(profile.calls) for profile in profiles])
    table = Calls(
        base_ns,
        rank,
        np.fromiter((call.comm & 0xFFFFFFFFFFFFFFFF for call in calls), dtype=np.uint64, count=count),
        *(_column(calls, name, np.int64, count) for name in ("seq", "op", "bytes", "peer")),  # type: ignore[arg-type]
        *(_seconds(calls, name, base_ns, count) for name in ("entry_ns", "start_ns", "end_ns")),
    )
    duration = table.duration
    with np.errstate(invalid="ignore"):
        sane = np.isfinite(table.entry) & (duration >= 0) & (duration <= _LONGEST_S)
    return table if sane.all() else table.where(sane)


def calls_for_each(calls: Calls) -> Floats:
    """By call: how many its rank made on its communicator for each that is known; numbers that are missing were made,
    but not timed or not sent."""
    order = np.lexsort((calls.seq, calls.rank, calls.comm))
    comm, rank, seq = calls.comm[order], calls.rank[order], calls.seq[order]
    if len(order) == 0:
        return np.empty(0)
    first = np.flatnonzero(np.r_[True, (comm[1:] != comm[:-1]) | (rank[1:] != rank[:-1])])
    counts = np.diff(np.r_[first, len(order)])
    last = first + counts - 1
    found = np.empty(len(order))
    found[order] = np.repeat(np.maximum((seq[last] - seq[first] + 1) / counts, 1.0), counts)
    return found


def sane_seconds(values: Iterable[float]) -> Floats:
    """A list of an item an iteration as an array; impossible ones are NaN."""
    array = np.array(list(values), dtype=np.float64)
    with np.errstate(invalid="ignore"):
        array[~((array >= 0) & (array <= _LONGEST_S))] = np.nan
    return array


@dataclass(frozen=True)
class Iterations:
    """What happened in each iteration of a rank, in seconds, NaN where it isn't known; equally long arrays.

    `gpu`: own time that isn't the host's. `inner`: the host's outside the boundary gap.
    """

    total: Floats
    own: Floats
    host: Floats
    boundary: Floats

    @property
    def gpu(self) -> Floats:
        """Own time after the host had issued the next call."""
        return np.maximum(self.own - self.host, 0.0)

    def __len__(self) -> int:
        return len(self.own)


def iterations_of(profile: RankProfile) -> Iterations:
    """The lists of a profile, cut to their common length, from the end; rows without own time left out."""
    lists = [profile.iteration_s, profile.own_s, profile.host_s, profile.boundary_s]
    count = min(len(values) for values in lists)
    total, own, host, boundary = (sane_seconds(values[len(values) - count :]) for values in lists)
    known = np.isfinite(total) & np.isfinite(own) & (total > 0)
    host, boundary = np.fmin(np.nan_to_num(host), own), np.fmin(np.nan_to_num(boundary), own)
    return Iterations(total[known], own[known], host[known], boundary[known])


@dataclass(frozen=True)
class Instances:
    """Calls of several members that are one collective: `order` sorts the calls so that those of one instance are
    neighbours, `first` says where in that order each begins, and `members` how many calls it has."""

    order: Ints
    first: Ints
    members: Ints

    def __iter__(self) -> Iterator[Ints]:
        for first, count in zip(self.first.tolist(), self.members.tolist(), strict=True):
            yield self.order[first : first + count]


def instances_of(calls: Calls) -> Instances:
    """Which calls belong together: equal communicator, number and operation."""
    if len(calls) == 0:
        nothing = np.empty(0, dtype=np.int64)
        return Instances(nothing, nothing, nothing)
    order = np.lexsort((calls.op, calls.seq, calls.comm))
    comm, seq, op = calls.comm[order], calls.seq[order], calls.op[order]
    new = np.r_[True, (comm[1:] != comm[:-1]) | (seq[1:] != seq[:-1]) | (op[1:] != op[:-1])]
    first = np.flatnonzero(new)
    return Instances(order, first, np.diff(np.r_[first, len(order)]))
