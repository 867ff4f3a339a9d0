"""Offsets between the clocks of nodes, from collectives that they share.

All members of an all-reduce (and the like) leave it at about the same moment, so the difference of two nodes' ends is
the difference of their clocks, plus some microseconds of skew. Medians over many calls; nodes that share no
collective are linked through others that they share one with (a spanning tree of the best-known differences).
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from greyhound.localize.model import RankProfile
from greyhound.localize.table import SYMMETRIC, Calls, Floats, instances_of

JUMP_S = 1.0
"""A clock that leaps by more within a profile was set; time synchronisation slews by under a millisecond."""
_MAD_TO_DEVIATION = 1.4826


@dataclass(frozen=True)
class Clocks:
    """By node: seconds to subtract from its times, and the uncertainty of that; only nodes whose offset is known.

    `jumped`: nodes whose clock leapt within the profile, with the seconds since base after which it isn't believed.
    """

    offset_s: dict[int, float]
    uncertainty_s: dict[int, float]
    jumped: dict[int, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def known(self, one: int, other: int) -> bool:
        """Whether times of two nodes can be compared."""
        return one == other or (one in self.offset_s and other in self.offset_s)


@dataclass(frozen=True)
class _Edge:
    one: int
    other: int
    offset_s: float
    error_s: float
    leap_s: float
    leap_at_s: float


def _differences(nodes: Sequence[int], calls: Calls) -> dict[tuple[int, int], list[tuple[float, float]]]:
    """(time, difference of ends) by pair of nodes; the first node of a call is compared with each other one."""
    node = np.asarray(nodes)[calls.rank]
    ends = calls.end
    found: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    instances = instances_of(calls)
    low = np.minimum.reduceat(node[instances.order], instances.first) if len(instances.first) else np.empty(0)
    high = np.maximum.reduceat(node[instances.order], instances.first) if len(instances.first) else np.empty(0)
    for first, count in zip(
        instances.first[low != high].tolist(), instances.members[low != high].tolist(), strict=True
    ):
        rows = instances.order[first : first + count]
        by_node: dict[int, float] = {}
        for key, end in zip(node[rows].tolist(), ends[rows].tolist(), strict=True):
            by_node.setdefault(key, end)
        base = min(by_node)
        for other, end in by_node.items():
            if other != base:
                found[base, other].append((by_node[base], end - by_node[base]))
    return found


def _leap(differences: Floats) -> tuple[int, float]:
    """(index, seconds) of the largest leap between neighbours, or (0, 0.0) where the clocks ran evenly."""
    if len(differences) < 4:
        return 0, 0.0
    steps = np.diff(differences)
    index = int(np.argmax(np.abs(steps)))
    before, after = np.median(differences[: index + 1]), np.median(differences[index + 1 :])
    leap = float(after - before)
    lasting = abs(leap) > JUMP_S and abs(abs(float(steps[index])) - abs(leap)) < 0.5 * abs(leap)
    return (index + 1, leap) if lasting else (0, 0.0)


def _edge(one: int, other: int, rows: list[tuple[float, float]]) -> _Edge:
    rows.sort()
    times, differences = np.array(rows).T
    index, leap_s = _leap(differences)
    kept = differences[:index] if index else differences
    middle = float(np.median(kept))
    spread = _MAD_TO_DEVIATION * float(np.median(np.abs(kept - middle)))
    return _Edge(one, other, middle, spread, leap_s, float(times[index]) if index else np.inf)


def _tree(nodes: set[int], edges: list[_Edge]) -> tuple[dict[int, float], dict[int, float]]:
    """Offsets and uncertainties along the best-known differences, from the lowest node of the largest part."""
    near: dict[int, list[tuple[int, float, float]]] = defaultdict(list)
    root = {node: node for node in nodes}

    def part(node: int) -> int:
        while root[node] != node:
            root[node] = node = root[root[node]]
        return node

    for edge in sorted(edges, key=lambda found: found.error_s):
        one, other = part(edge.one), part(edge.other)
        if one != other:
            root[one] = other
            near[edge.one].append((edge.other, edge.offset_s, edge.error_s))
            near[edge.other].append((edge.one, -edge.offset_s, edge.error_s))
    sizes: dict[int, int] = defaultdict(int)
    for node in nodes:
        sizes[part(node)] += 1
    largest = max(sizes, key=lambda node: (sizes[node], -min(n for n in nodes if part(n) == node)))
    start = min(node for node in nodes if part(node) == largest)
    offset, error = {start: 0.0}, {start: 0.0}
    queue = [start]
    for node in queue:
        for other, offset_s, error_s in near[node]:
            if other not in offset:
                offset[other], error[other] = offset[node] + offset_s, error[node] + error_s
                queue.append(other)
    return offset, error


def clocks_of(profiles: Sequence[RankProfile], calls: Calls) -> Clocks:
    """How the nodes' clocks differ; nodes without a collective shared with the others have no offset."""
    nodes = [profile.node for profile in profiles]
    if len(set(nodes)) < 2:
        return Clocks(dict.fromkeys(nodes, 0.0), dict.fromkeys(nodes, 0.0))
    found = _differences(nodes, calls.where(np.isin(calls.op, SYMMETRIC)))
    edges = [_edge(one, other, rows) for (one, other), rows in found.items()]
    offset, error = _tree(set(nodes), edges)
    jumped, notes = _jumps(edges)
    alone = sorted(set(nodes) - set(offset))
    if alone:
        notes.append(f"clocks not aligned: node {', '.join(map(str, alone))} shares no collective with the others")
    return Clocks(offset, error, jumped, tuple(notes))


def _jumps(edges: list[_Edge]) -> tuple[dict[int, float], list[str]]:
    """Which nodes' clocks leapt: those that most of the differing pairs have in common."""
    leaps = [edge for edge in edges if edge.leap_s]
    jumped: dict[int, float] = {}
    notes = []
    while leaps:
        votes: dict[int, int] = defaultdict(int)
        for edge in leaps:
            votes[edge.one] += 1
            votes[edge.other] += 1
        worst = max(votes, key=lambda node: (votes[node], node))
        mine = [edge for edge in leaps if worst in (edge.one, edge.other)]
        size_s = float(np.median([abs(edge.leap_s) for edge in mine]))
        jumped[worst] = min(edge.leap_at_s for edge in mine)
        notes.append(f"the clock of node {worst} leapt by {size_s:.0f} s within the profile; what follows is not used")
        leaps = [edge for edge in leaps if edge not in mine]
    return jumped, notes


def without_leaps(profiles: Sequence[RankProfile], calls: Calls, clocks: Clocks) -> Calls:
    """The calls without those of a node whose clock had leapt."""
    if not clocks.jumped:
        return calls
    until = np.array([clocks.jumped.get(profile.node, np.inf) for profile in profiles])
    offset = np.array([clocks.offset_s.get(profile.node, 0.0) for profile in profiles])
    return calls.where(calls.end - offset[calls.rank] < until[calls.rank])
