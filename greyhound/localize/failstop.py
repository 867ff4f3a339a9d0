"""Fail-stops: a rank that doesn't come to a call in which its peers stand, for longer than any pause takes.

What the hook counts tells who is awaited: members of a communicator issue the same collectives, so whoever has issued
fewer than the others is what they wait for; likewise a receive without its send. A rank that is awaited but itself
waits for somebody else is a victim: the one at the end of the chain has stopped. Where all have issued the same calls
nobody is awaited: an evaluation, a checkpoint, or a job that sleeps.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

from greyhound.localize.model import Communicator
from greyhound.trace import layout

COLLECTIVE, SENDS, RECEIVES = int(layout.GH_COUNT_COLLECTIVE), int(layout.GH_COUNT_SEND), int(layout.GH_COUNT_RECV)

LEAST_PATIENCE_S = 60.0
"""Nothing is called a fail-stop sooner: a rank that reads a file or compiles may keep the others waiting so long."""
_ITERATIONS = 10.0  # that a job stands still without having stopped
_PAUSES = 3.0  # times the longest pause that the job had
_MOST_AWAITED = 64  # members of a communicator: of more, those that are furthest behind and stand longest

Count = tuple[int, int, int]
"""Communicator, COLLECTIVE, SENDS or RECEIVES, and the peer's rank in it (-1 for collectives)."""


@dataclass(frozen=True)
class InFlight:
    """A call that a rank's host is inside of, for so many seconds."""

    comm: int
    seq: int
    op: int
    for_s: float


@dataclass(frozen=True)
class Standing:
    """A rank as its ring shows it: what it has issued, what it is inside of, and how long no count has moved.

    `last`: its last record, in words; `last_comm`: the communicator of that, None if it isn't known.
    """

    node: int
    key: str
    rank: int
    still_s: float
    counts: Mapping[Count, int]
    comms: tuple[Communicator, ...]
    in_flight: tuple[InFlight, ...] = ()
    last: str = ""
    last_comm: int | None = None


@dataclass(frozen=True)
class Stopped:
    """A rank that others wait for: the call that it doesn't come to (or doesn't leave), for how long, and who waits.

    `op` is -1 where no waiting rank's host tells it. `inside`: it has come, and its host doesn't return.
    """

    node: int
    key: str
    rank: int
    comm: int
    seq: int
    op: int
    since_s: float
    waiting: tuple[int, ...]
    inside: bool = False
    last: str = ""

    @property
    def text(self) -> str:
        """A line for people."""
        name = layout.OPS.get(self.op, "call")
        where = "does not return from" if self.inside else "does not come to"
        after = f"; its last record: {self.last}" if self.last else ""
        return (
            f"rank {self.rank} {where} {name} {self.seq} of communicator {self.comm:016x} for {self.since_s:.0f} s; "
            f"{len(self.waiting)} ranks wait for it{after}"
        )


def patience_s(iteration_s: float, longest_pause_s: float = 0.0) -> float:
    """How long a job may stand still; `longest_pause_s` of those that it came out of by itself."""
    return max(LEAST_PATIENCE_S, _ITERATIONS * iteration_s, _PAUSES * longest_pause_s)


Call = tuple[int, int]
"""Communicator and number."""
Waits = dict[int, dict[int, Call]]
"""By rank: for whom it waits, and at which call."""


def stopped(ranks: Sequence[Standing], patience: float) -> list[Stopped]:
    """The ranks at the ends of the chains of waiting, if they and those who wait stand for `patience` seconds.

    Empty where nobody waits for anybody (a pause of all), where somebody in the chain still moves, and where ranks wait
    for each other in a circle (nobody is blamed for a deadlock). Counts of ranks that move may be of different times;
    of those that stand they are exact.
    """
    sure = _waits(ranks)
    waits = _with_sends(ranks, sure)
    awaited, partly = _awaited_by(waits), _partly_known(ranks)
    found = []
    for index in _not_together(ranks, _ends(sure, waits, len(ranks))):
        if _may_be_named(ranks[index], partly, patience):
            waiting = awaited.get(index, {})
            standing = {other: call for other, call in waiting.items() if ranks[other].still_s >= patience}
            if standing:
                found.append(_stopped(ranks, index, standing, _victims(awaited, index)))
    return sorted(found or _inside(ranks, patience), key=lambda row: -row.since_s)


def _ends(sure: Waits, possible: Waits, count: int) -> list[int]:
    """The ranks at the ends of all chains.

    A rank may have sent ahead, so a send alone is only a possible wait: where ranks wait for one another in a circle,
    those waits are left out within it.
    """
    edges = np.array([(index, other) for index, others in possible.items() for other in others], dtype=np.int64)
    waiting, awaiting = edges.reshape(-1, 2).T
    graph = csr_matrix((np.ones(len(waiting)), (waiting, awaiting)), shape=(count, count))
    labels = connected_components(graph, directed=True, connection="strong")[1]
    part = np.asarray(labels, dtype=np.int64)
    apart = np.not_equal(part[waiting], part[awaiting])
    leaving = set(np.extract(apart, part[waiting]).tolist())
    awaited = set(awaiting.tolist())
    members: dict[int, list[int]] = defaultdict(list)
    for index, number in enumerate(part.tolist()):
        members[number].append(index)
    found = []
    for number in sorted(members.keys() - leaving):
        inside = members[number]
        if len(inside) == 1:
            found += [index for index in inside if index in awaited]
            continue
        held = {other for index in inside for other in sure.get(index, {}) if part[other] == number}
        found += [index for index in inside if index in held and not sure.get(index)]
    return found


def _not_together(ranks: Sequence[Standing], ends: Sequence[int]) -> list[int]:
    """Without those whose last call is the same collective: one of them holds the others in it, and counts don't tell
    which (its host has issued the call, its GPU or its process doesn't do its part)."""
    calls: dict[tuple[int, int], list[int]] = defaultdict(list)
    for index in ends:
        comm = ranks[index].last_comm
        if comm is not None:
            calls[comm, ranks[index].counts.get((comm, COLLECTIVE, -1), 0)].append(index)
    held = {index for (_, count), inside in calls.items() if count and len(inside) > 1 for index in inside}
    return [index for index in ends if index not in held]


def _may_be_named(rank: Standing, partly: set[int], patience: float) -> bool:
    """Whether it stands, and doesn't perhaps itself wait for a rank that isn't seen (of a communicator in `partly`)."""
    if rank.still_s < patience:
        return False
    return not partly or (rank.last_comm is not None and rank.last_comm not in partly)


def _partly_known(ranks: Sequence[Standing]) -> set[int]:
    """Communicators of which some members aren't seen."""
    sizes = {comm.hash: comm.size for standing in ranks for comm in standing.comms}
    return {comm for comm, members in _members(ranks).items() if len(members) < sizes[comm]}


def _waits(ranks: Sequence[Standing]) -> Waits:
    """Who waits for whom at a collective, or at a receive."""
    waits: Waits = defaultdict(dict)
    for comm, members in _members(ranks).items():
        issued = {index: ranks[index].counts.get((comm, COLLECTIVE, -1), 0) for index in members.values()}
        most = max(issued.values())
        behind = [index for index, count in issued.items() if count < most]
        if len(behind) > _MOST_AWAITED:
            behind = sorted(behind, key=lambda index: (issued[index], -ranks[index].still_s))[:_MOST_AWAITED]
        for index, count in issued.items():
            for other in behind:
                if issued[other] < count:
                    waits[index][other] = (comm, issued[other])
        _exchange_waits(ranks, comm, members, RECEIVES, waits)
    return waits


def _with_sends(ranks: Sequence[Standing], waits: Waits) -> Waits:
    """Also who waits at a send; a rank may have sent ahead and gone on, so that counts where nothing else is known."""
    found: Waits = defaultdict(dict, {index: dict(others) for index, others in waits.items()})
    for comm, members in _members(ranks).items():
        _exchange_waits(ranks, comm, members, SENDS, found)
    return found


def _members(ranks: Sequence[Standing]) -> dict[int, dict[int, int]]:
    found: dict[int, dict[int, int]] = defaultdict(dict)
    for index, standing in enumerate(ranks):
        for comm in standing.comms:
            if comm.size > 1:
                found[comm.hash][comm.rank] = index
    return found


def _exchange_waits(ranks: Sequence[Standing], comm: int, members: Mapping[int, int], kind: int, waits: Waits) -> None:
    """Receives that are more than the peer's sends, or sends that are more than its receives."""
    for place, index in members.items():
        for (number, counted, peer), count in ranks[index].counts.items():
            other = members.get(peer)
            if number != comm or counted != kind or other is None:
                continue
            theirs = ranks[other].counts.get((comm, SENDS if kind == RECEIVES else RECEIVES, place), 0)
            if count > theirs:
                waits[index].setdefault(other, (comm, theirs))


def _awaited_by(waits: Waits) -> Waits:
    found: Waits = defaultdict(dict)
    for index, others in waits.items():
        for other, call in others.items():
            found[other][index] = call
    return found


def _victims(awaited: Waits, root: int) -> set[int]:
    """All that wait for a rank, directly or through others."""
    found: set[int] = set()
    queue = [root]
    while queue:
        for other in awaited.get(queue.pop(), {}):
            if other not in found and other != root:
                found.add(other)
                queue.append(other)
    return found


def _inside(ranks: Sequence[Standing], patience: float) -> list[Stopped]:
    """Ranks whose host doesn't return from a call which the other members' hosts have left; all stand."""
    found = []
    members = {comm: set(row.values()) for comm, row in _members(ranks).items()}
    inside: dict[int, set[int]] = defaultdict(set)
    for index, standing in enumerate(ranks):
        for call in standing.in_flight:
            if index in members.get(call.comm, ()):
                inside[call.comm].add(index)
    for index, standing in enumerate(ranks):
        for call in standing.in_flight:
            if min(call.for_s, standing.still_s) < patience or not inside[call.comm] <= {index}:
                continue
            others = members.get(call.comm, set()) - {index}
            if others and all(ranks[other].still_s >= patience for other in others):
                found.append(_stopped(ranks, index, dict.fromkeys(sorted(others), (call.comm, call.seq)), others))
    return found


def _stopped(ranks: Sequence[Standing], index: int, waiting: Mapping[int, Call], victims: Iterable[int]) -> Stopped:
    comm, seq = waiting[max(waiting, key=lambda other: ranks[other].still_s)]
    inside = [call for other in waiting for call in ranks[other].in_flight if call.comm == comm]
    mine = ranks[index].in_flight
    since_s = min(ranks[index].still_s, max(ranks[other].still_s for other in waiting))
    return Stopped(
        ranks[index].node,
        ranks[index].key,
        ranks[index].rank,
        mine[0].comm if mine else comm,
        mine[0].seq if mine else seq,
        mine[0].op if mine else next((call.op for call in inside), -1),
        since_s,
        tuple(sorted(ranks[other].rank for other in victims)),
        bool(mine),
        ranks[index].last,
    )
