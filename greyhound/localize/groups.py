"""Communicators as their members' profiles show them: who is in them, and what they are for.

The role comes from membership and traffic alone. It serves the wording and keeps unlike groups apart; what is compared
are groups of equal role, size, spread over nodes, and volume.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from greyhound.localize.model import RankProfile
from greyhound.localize.table import GROUP, RECV, SEND, SYMMETRIC, Calls, calls_for_each
from greyhound.trace import layout

ROLES = ("tp", "dp", "pp", "ep", "cp", "world", "unknown")

_ALL_REDUCE, _ALL_GATHER = int(layout.GH_OP_ALL_REDUCE), int(layout.GH_OP_ALL_GATHER)
_REDUCE_SCATTER, _ALL_TO_ALL = int(layout.GH_OP_REDUCE_SCATTER), int(layout.GH_OP_ALL_TO_ALL)
_LIGHT_SHARE = 0.02  # of a rank's collective bytes: below, a group only agrees on something (norms, losses, barriers)
_SAME_SIZE = 0.9  # of a TP group's bytes are activations, all of one size; gradient buckets differ
_MANY_CALLS = 4.0  # an iteration and size: each layer and micro-batch passes a TP group at least so often
_REGATHERED = 1.8  # all-gathers a reduce-scatter: FSDP gathers each layer twice, sequence parallelism 1.5 times


@dataclass(frozen=True)
class Traffic:
    """What a member of a group sends in an iteration: calls by (operation, bytes), and whether sends stand alone."""

    calls: dict[tuple[int, int], float]
    lone: bool = True
    peers: int = 0
    one_way: bool = False

    @property
    def volume(self) -> float:
        """Bytes an iteration."""
        return sum(count * size for (_, size), count in self.calls.items())

    @property
    def count(self) -> float:
        """Calls an iteration."""
        return sum(self.calls.values())

    def of(self, *ops: int) -> float:
        """Calls an iteration of some operations."""
        return sum(count for (op, _), count in self.calls.items() if op in ops)


@dataclass(frozen=True)
class Group:
    """A communicator. `members`: index of the profile by the rank in the communicator, as far as they are known."""

    comm: int
    size: int
    members: dict[int, int]
    nodes: frozenset[int]
    traffic: Traffic
    role: str = "unknown"

    @property
    def complete(self) -> bool:
        """Whether all members have a profile."""
        return len(self.members) == self.size

    @property
    def kind(self) -> tuple[str, int, int]:
        """What a comparable group must equal: role, size, number of nodes."""
        return self.role, self.size, len(self.nodes)


def _memberships(profiles: Sequence[RankProfile]) -> dict[int, tuple[int, dict[int, int]]]:
    found: dict[int, tuple[int, dict[int, int]]] = {}
    for index, profile in enumerate(profiles):
        for comm in profile.comms:
            if 0 <= comm.rank < comm.size:
                found.setdefault(comm.hash, (comm.size, {}))[1].setdefault(comm.rank, index)
    return found


def _per_iteration(profiles: Sequence[RankProfile], calls: Calls) -> dict[int, Traffic]:
    """Traffic by communicator, as its busiest member sees it (others may have lost records)."""
    if len(calls) == 0:
        return {}
    rows = np.stack([calls.comm.view(np.int64), calls.rank, calls.op, calls.bytes], axis=1)
    order = np.lexsort(rows.T[::-1])
    rows = rows[order]
    first = np.flatnonzero(np.r_[True, (rows[1:] != rows[:-1]).any(axis=1)])
    counts = np.diff(np.r_[first, len(rows)])
    made = calls_for_each(calls)[order][first]
    by_member: dict[int, dict[int, dict[tuple[int, int], float]]] = defaultdict(lambda: defaultdict(dict))
    for (comm, rank, op, size), count in zip(rows[first].tolist(), (counts * made).tolist(), strict=True):
        iterations = max(len(profiles[rank].iteration_s), 1)
        by_member[comm & 0xFFFFFFFFFFFFFFFF][rank][op, size] = count / iterations
    busiest = {comm: max(members.values(), key=lambda c: sum(c.values())) for comm, members in by_member.items()}
    shapes = _exchange_shapes(calls)
    return {comm: Traffic(found, *shapes.get(comm, ())) for comm, found in busiest.items()}


def _exchange_shapes(calls: Calls) -> dict[int, tuple[bool, int, bool]]:
    """Of each communicator with sends: whether some stand alone, how many peers a member has, whether it's a ring."""
    transfers = calls.where((calls.op == SEND) | (calls.op == RECV))
    found: dict[int, tuple[bool, int, bool]] = {}
    transfers = transfers.where(np.argsort(transfers.comm, kind="stable"))
    if len(transfers) == 0:
        return {}
    edges = np.flatnonzero(np.r_[True, transfers.comm[1:] != transfers.comm[:-1], True])
    for begin, end in pairwise(edges.tolist()):
        mine = transfers.where(np.arange(begin, end))
        comm = mine.comm[0]
        brackets = Counter(zip(mine.rank.tolist(), mine.start.tolist(), strict=True))
        to = {
            (rank, peer)
            for rank, peer, op in zip(mine.rank.tolist(), mine.peer.tolist(), mine.op.tolist(), strict=True)
            if op == SEND
        }
        by_rank = defaultdict(set)
        for rank, peer in zip(mine.rank.tolist(), mine.peer.tolist(), strict=True):
            by_rank[rank].add(peer)
        out = Counter(rank for rank, _ in to)
        one_way = len(by_rank) > 2 and all(count == 1 for count in out.values()) and len(out) == len(by_rank)
        found[int(comm)] = (min(brackets.values()) == 1, max(map(len, by_rank.values())), one_way)
    return found


def _exchange_role(size: int, traffic: Traffic) -> str:
    if size > 2 and traffic.peers >= size - 1 and traffic.peers > 2:
        return "ep"
    if traffic.one_way or (size == 2 and not traffic.lone):
        return "cp"
    return "pp"


def _repeats_one_size(traffic: Traffic) -> bool:
    counts: dict[int, float] = defaultdict(float)
    for (op, size), count in traffic.calls.items():
        if op in SYMMETRIC:
            counts[size] += count
    volume, size = max(((count * size, size) for size, count in counts.items()), default=(0.0, 0))
    total = sum(count * size for size, count in counts.items())
    return total > 0 and counts[size] >= _MANY_CALLS and volume >= _SAME_SIZE * total


def _collective_role(group: Group, share: float, world: int, alone: bool) -> str:
    traffic = group.traffic
    if share < _LIGHT_SHARE:
        return "world" if group.size == world else "unknown"
    if traffic.of(_ALL_TO_ALL) > 0.5 * traffic.count:
        return "ep"
    gathers, scatters = traffic.of(_ALL_GATHER), traffic.of(_REDUCE_SCATTER)
    sharded = gathers + scatters > traffic.of(_ALL_REDUCE) and (gathers >= _REGATHERED * scatters or alone)
    return "tp" if _repeats_one_size(traffic) and not sharded else "dp"


def groups_of(profiles: Sequence[RankProfile], calls: Calls) -> dict[int, Group]:
    """The communicators by hash, with their roles."""
    traffic = _per_iteration(profiles, calls)
    nothing = Traffic({})
    found = {
        comm: Group(
            comm, size, members, frozenset(profiles[i].node for i in members.values()), traffic.get(comm, nothing)
        )
        for comm, (size, members) in _memberships(profiles).items()
    }
    return _with_roles(found, len(profiles))


def _with_roles(groups: dict[int, Group], world: int) -> dict[int, Group]:
    volume: Counter[int] = Counter()
    for group in groups.values():
        for member in group.members.values():
            volume[member] = max(volume[member], int(group.traffic.volume))
    heavy: Counter[int] = Counter()
    for group in groups.values():
        for member in group.members.values():
            heavy[member] += group.traffic.volume >= _LIGHT_SHARE * volume[member] > 0
    return {comm: _with_role(group, world, volume, heavy) for comm, group in groups.items()}


def _with_role(group: Group, world: int, volume: Counter[int], heavy: Counter[int]) -> Group:
    traffic = group.traffic
    role = "unknown"
    if group.size > 1 and traffic.count > 0:
        if traffic.of(SEND, RECV, GROUP) > 0.5 * traffic.count:
            role = _exchange_role(group.size, traffic)
        else:
            most = max(volume[member] for member in group.members.values())
            alone = all(heavy[member] <= 1 for member in group.members.values())
            role = _collective_role(group, traffic.volume / max(most, 1), world, alone)
    return Group(group.comm, group.size, group.members, group.nodes, traffic, role)


def stage_positions(groups: dict[int, Group], ranks: int) -> list[tuple[object, ...]]:
    """Where each rank stands in its pipelines; equal work at another place isn't equal.

    (size, rank in it) of each pipeline's communicator; where there is one for each two neighbours, inner stages look
    alike by that, so the ranks that they share data or tensors with are added.
    """
    places: list[set[tuple[int, int]]] = [set() for _ in range(ranks)]
    for group in groups.values():
        if group.role == "pp":
            for place, member in group.members.items():
                places[member].add((group.size, place))
    together = _together(groups, ranks)
    inner = {(2, 0), (2, 1)}
    return [(*sorted(place), *([together[rank]] if place == inner else [])) for rank, place in enumerate(places)]


def _together(groups: dict[int, Group], ranks: int) -> list[int]:
    """A number by rank, equal for those that are linked by groups other than pipelines and light ones."""
    root = list(range(ranks))

    def end(rank: int) -> int:
        while root[rank] != rank:
            root[rank] = rank = root[root[rank]]
        return rank

    for group in groups.values():
        if group.role in ("tp", "dp", "ep", "cp"):
            first, *others = group.members.values()
            for other in others:
                root[end(other)] = end(first)
    return [end(rank) for rank in range(ranks)]


def equals(profiles: Sequence[RankProfile], groups: dict[int, Group]) -> list[tuple[object, ...]]:
    """What ranks with the same work share: fingerprint and place in the pipeline; per profile."""
    return [
        (profile.work, place) for profile, place in zip(profiles, stage_positions(groups, len(profiles)), strict=True)
    ]
