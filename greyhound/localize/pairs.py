"""Point-to-point transfers: which send belongs to which receive, and how long the two take together.

Sends and receives that were issued in one group share one pair of times (a *bracket*). Both ranks of a pair have the
same brackets in the same order; that of the rank which came last is the transfer.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import numpy as np
from numpy.typing import NDArray

from greyhound.localize.clocks import Clocks
from greyhound.localize.groups import Group
from greyhound.localize.model import RankProfile
from greyhound.localize.table import GROUP, RECV, SEND, Calls, Floats, Ints, calls_for_each

DOWN, UP, BOTH = 1, 2, 3
"""From the lower to the higher place in the communicator, the other way, or both in one bracket."""
_LAGS = range(-4, 5)  # calls that one side may have more at either edge of the profile


@dataclass(frozen=True)
class Brackets:
    """One row a bracket of one rank with one peer. `way` is DOWN, UP or BOTH; seconds since the
    table's base; `made`: calls of this kind for each that is known."""

    rank: Ints
    other: Ints
    lower: NDArray[np.bool_]
    way: Ints
    bytes: Ints
    start: Floats
    end: Floats
    made: Floats

    def where(self, rows: NDArray[np.bool_] | Ints) -> "Brackets":
        """Some of the rows."""
        return Brackets(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


@dataclass(frozen=True)
class PairTransfers:
    """Transfers of one pair: seconds and class (way, bytes) of each; `made`: how many there were for each of these."""

    seconds: Floats
    classes: list[tuple[int, int]]
    made: float


def _peers(calls: Calls, groups: dict[int, Group]) -> tuple[Ints, NDArray[np.bool_]]:
    """Index of the peer's profile by call, -1 unknown; and whether the caller has the lower place of the two."""
    keys = np.stack([calls.comm.view(np.int64), calls.peer, calls.rank], axis=1)
    unique, which = np.unique(keys, axis=0, return_inverse=True)
    index, lower = np.full(len(unique), -1), np.zeros(len(unique), dtype=bool)
    for row, (comm, peer, rank) in enumerate(unique.tolist()):
        group = groups.get(comm & 0xFFFFFFFFFFFFFFFF)
        if group is None:
            continue
        mine = next((place for place, member in group.members.items() if member == rank), -1)
        if peer < 0 and group.size == 2 and mine >= 0:
            peer = 1 - mine
        index[row], lower[row] = group.members.get(peer, -1), mine < peer
    which = which.reshape(-1)
    return index[which], lower[which]


def brackets_of(calls: Calls, groups: dict[int, Group]) -> Brackets:
    """The brackets in which a rank exchanges with one known peer only; others say nothing about one link."""
    mine = calls.where(np.isin(calls.op, (SEND, RECV, GROUP)))
    other, lower = _peers(mine, groups)
    made = calls_for_each(mine)
    order = np.lexsort((mine.end, mine.start, mine.rank))
    mine, other, lower = mine.where(order), other[order], lower[order]
    if len(mine) == 0:
        nothing = np.empty(0, dtype=np.int64)
        return Brackets(nothing, nothing, nothing > 0, nothing, nothing, *(np.empty(0) for _ in range(3)))
    same = (np.diff(mine.rank) == 0) & (np.diff(mine.start) == 0) & (np.diff(mine.end) == 0)
    first = np.flatnonzero(np.r_[True, ~same])
    sends = np.add.reduceat((mine.op == SEND).astype(np.int64), first)
    receives = np.add.reduceat((mine.op == RECV).astype(np.int64), first)
    one_peer = (np.minimum.reduceat(other, first) == np.maximum.reduceat(other, first)) & (other[first] >= 0)
    alone = np.where(lower[first] == (sends > 0), DOWN, UP)
    way = np.where((sends > 0) == (receives > 0), BOTH, alone)
    size = np.add.reduceat(mine.bytes, first)
    rows = first[one_peer]
    times = (mine.start[rows], mine.end[rows], made[order][rows])
    return Brackets(mine.rank[rows], other[rows], lower[rows], way[one_peer], size[one_peer], *times)


def _nearest(one: Floats, other: Floats) -> tuple[Ints, Ints]:
    """Indices of ends that are each other's nearest; both sorted."""

    def near(values: Floats, of: Floats) -> Ints:
        right = np.clip(np.searchsorted(of, values), 1, max(len(of) - 1, 1))
        right = np.minimum(right, len(of) - 1)
        left = np.maximum(right - 1, 0)
        return np.where(np.abs(values - of[left]) <= np.abs(values - of[right]), left, right)

    to, back = near(one, other), near(other, one)
    mutual = back[to] == np.arange(len(one))
    return np.flatnonzero(mutual), to[mutual]


def _close(apart: Floats, ends: Floats) -> NDArray[np.bool_]:
    """Whether ends differ from one another as most do: by less than calls usually follow on each other."""
    if len(apart) == 0:
        return np.empty(0, dtype=bool)
    usual = median(np.diff(np.sort(ends)).tolist()) if len(ends) > 1 else math.inf
    near: NDArray[np.bool_] = np.abs(apart - median(apart.tolist())) <= usual / 2
    return near


def _in_order(one: Floats, other: Floats) -> tuple[Ints, Ints]:
    """Indices by the shift at which the two sides' ends run most in parallel; their clocks may differ by anything."""
    best, found = np.inf, (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
    for lag in _LAGS:
        begin, count = max(0, -lag), min(len(one) - max(0, -lag), len(other) - max(0, lag))
        if count < max(len(one), len(other)) // 2 or count < 2:
            continue
        mine = np.arange(begin, begin + count)
        theirs = mine + lag
        apart = one[mine] - other[theirs]
        spread = float(np.mean(np.abs(apart - np.median(apart)))) * (1 + 0.01 * abs(lag))
        if spread < best:
            best, found = spread, (mine, theirs)
    return found


def pair_transfers(
    profiles: Sequence[RankProfile], calls: Calls, groups: dict[int, Group], clocks: Clocks
) -> dict[tuple[int, int], PairTransfers]:
    """Transfers by pair of profiles (lower place first)."""
    brackets = brackets_of(calls, groups)
    first = np.where(brackets.lower, brackets.rank, brackets.other)
    second = np.where(brackets.lower, brackets.other, brackets.rank)
    order = np.lexsort((brackets.end, second, first))
    brackets, first, second = brackets.where(order), first[order], second[order]
    edges = np.flatnonzero(np.r_[True, (np.diff(first) != 0) | (np.diff(second) != 0), True])
    found = {}
    for begin, end in pairwise(edges.tolist()):
        if end - begin < 2:
            continue
        pair = int(first[begin]), int(second[begin])
        matched = _match(profiles, brackets.where(np.arange(begin, end)), pair, clocks)
        if matched is not None:
            found[pair] = matched
    return found


def _match(
    profiles: Sequence[RankProfile], both: Brackets, pair: tuple[int, int], clocks: Clocks
) -> PairTransfers | None:
    one, other = both.where(both.rank == pair[0]), both.where(both.rank == pair[1])
    if len(one.end) == 0 or len(other.end) == 0:
        return None
    nodes = profiles[pair[0]].node, profiles[pair[1]].node
    if clocks.known(*nodes):
        shift = clocks.offset_s.get(nodes[0], 0.0) - clocks.offset_s.get(nodes[1], 0.0)
        mine, theirs = _nearest(one.end - shift, other.end)
    else:
        shift = 0.0
        mine, theirs = _in_order(one.end, other.end)
    apart = one.end[mine] - shift - other.end[theirs]
    agree = (one.way[mine] == other.way[theirs]) & _close(apart, one.end)
    mine, theirs = mine[agree], theirs[agree]
    seconds = np.minimum(one.end[mine] - one.start[mine], other.end[theirs] - other.start[theirs])
    made = float(one.made.sum()) / max(len(mine), 1)
    return PairTransfers(seconds, list(zip(one.way[mine].tolist(), one.bytes[mine].tolist(), strict=True)), made)
