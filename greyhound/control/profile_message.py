"""Profiles on the way from the analyzers to the master: rows of plain numbers, calls as columns.

A call as an object with names would take three times the room, and a node may have hundreds of ranks.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any

from greyhound.control.fields import check_of, list_of, real, text, whole
from greyhound.localize.model import Communicator, RankProfile, TimedCall

ROWS_A_MESSAGE = 64
MOST_ITERATIONS = 256
MOST_CALLS = 256
MOST_COMMS = 512
_COLUMNS = 8  # communicator (its place in `comms`), seq, op, bytes, peer, entry after base, start after entry, length
_EVIDENCE_ITEMS, _EVIDENCE_DEPTH = 4096, 6

Numbers = Annotated[list[float], list_of(real, MOST_ITERATIONS)]


@dataclass(frozen=True)
class ProfileRow:
    """One RankProfile without its node; times of calls are ns, `entry` after `base_ns` (wall clock)."""

    key: str
    rank: int
    bus: str
    work: str
    timed: bool
    iteration_s: Numbers
    own_s: Numbers
    host_s: Numbers
    boundary_s: Numbers
    comms: Annotated[list[list[int]], list_of(list_of(whole, 3), MOST_COMMS)]
    base_ns: int
    calls: Annotated[list[list[int]], list_of(list_of(whole, MOST_CALLS), _COLUMNS)]

    def profile(self, node: int) -> RankProfile:
        """What was packed."""
        comms = tuple(Communicator(*row) for row in self.comms)
        calls = (self._call(comms, *values) for values in zip(*self.calls, strict=True))
        return RankProfile(
            node=node,
            key=self.key,
            rank=self.rank,
            bus=self.bus,
            work=self.work,
            timed=self.timed,
            iteration_s=tuple(self.iteration_s),
            own_s=tuple(self.own_s),
            host_s=tuple(self.host_s),
            boundary_s=tuple(self.boundary_s),
            comms=comms,
            calls=tuple(calls),
        )

    def _call(
        self, comms: tuple[Communicator, ...], comm: int, seq: int, op: int, nbytes: int, peer: int, *after_ns: int
    ) -> TimedCall:
        entry_ns = self.base_ns + after_ns[0]
        start_ns = entry_ns + after_ns[1]
        return TimedCall(comms[comm].hash, seq, op, nbytes, peer, entry_ns, start_ns, start_ns + after_ns[2])


def pack(profile: RankProfile) -> ProfileRow:
    """A profile whose calls are on its own communicators."""
    place = {comm.hash: number for number, comm in enumerate(profile.comms)}
    base_ns = min((call.entry_ns for call in profile.calls), default=0)
    calls = [_numbers(call, place[call.comm], base_ns) for call in profile.calls if call.comm in place]
    columns = [list(column) for column in zip(*calls, strict=True)] or [[] for _ in range(_COLUMNS)]
    return ProfileRow(
        key=profile.key,
        rank=profile.rank,
        bus=profile.bus,
        work=profile.work,
        timed=profile.timed,
        iteration_s=list(profile.iteration_s),
        own_s=list(profile.own_s),
        host_s=list(profile.host_s),
        boundary_s=list(profile.boundary_s),
        comms=[[comm.hash, comm.size, comm.rank] for comm in profile.comms],
        base_ns=base_ns,
        calls=columns,
    )


def _numbers(call: TimedCall, comm: int, base_ns: int) -> tuple[int, ...]:
    after_ns = (call.entry_ns - base_ns, call.start_ns - call.entry_ns, call.end_ns - call.start_ns)
    return (comm, call.seq, call.op, call.bytes, call.peer, *after_ns)


_ROW = check_of(ProfileRow)


def _row(value: Any) -> ProfileRow:
    """A row whose lists belong together."""
    row: ProfileRow = _ROW(value)
    if len({len(times) for times in (row.iteration_s, row.own_s, row.host_s, row.boundary_s)}) != 1:
        raise ValueError("lists of times of different lengths")
    if any(len(comm) != 3 for comm in row.comms) or len({comm[0] for comm in row.comms}) != len(row.comms):
        raise ValueError("communicators are not triples with hashes of their own")
    if len(row.calls) != _COLUMNS or len({len(column) for column in row.calls}) != 1:
        raise ValueError(f"calls are not {_COLUMNS} columns of one length")
    if any(not 0 <= comm < len(row.comms) for comm in row.calls[0]):
        raise ValueError("a call on a communicator that isn't listed")
    return row


def facts(value: Any) -> dict[str, Any]:
    """Named values (texts, numbers, flags, null, lists and objects of them), bounded in depth and number."""
    count = 0

    def check(item: Any, depth: int) -> Any:
        nonlocal count
        count += 1
        if count > _EVIDENCE_ITEMS or depth > _EVIDENCE_DEPTH:
            raise ValueError(f"more than {_EVIDENCE_ITEMS:,} values, or {_EVIDENCE_DEPTH} levels of them")
        if item is None or isinstance(item, bool):
            return item
        if isinstance(item, dict):
            return {text(name): check(one, depth + 1) for name, one in item.items()}
        if isinstance(item, list):
            return [check(one, depth + 1) for one in item]
        if isinstance(item, int):
            return whole(item)
        return real(item) if isinstance(item, float) else text(item)

    if not isinstance(value, dict):
        raise ValueError("not an object")
    found: dict[str, Any] = check(value, 0)
    return found


@dataclass(frozen=True)
class ProfileOrder:
    """Time the calls of all ranks from `start_ns` (wall clock) on for so many seconds.

    `budget`: brackets a second and rank; `one_in`: which calls (GH_OFF_PROFILE); `calls`: how many to send of a rank.
    """

    run: str
    reason: str
    start_ns: int
    seconds: float
    budget: int
    one_in: int
    calls: int


@dataclass(frozen=True)
class ProfileDone:
    """Profiles of a node's ranks; of a node with many in several messages, `last` of which ends them.

    `why_not`: what went wrong, empty where nothing did. `evidence`: what the node measured of its hardware and system.
    """

    run: str
    profiles: Annotated[list[ProfileRow], list_of(_row, ROWS_A_MESSAGE)]
    last: bool
    why_not: str
    evidence: Annotated[dict[str, Any], facts] = field(default_factory=dict)


def in_messages(
    run: str, profiles: Iterable[RankProfile], why_not: str, evidence: dict[str, Any] | None = None
) -> list[ProfileDone]:
    """What a node sends; evidence goes with the last."""
    rows = [pack(profile) for profile in profiles]
    parts = [rows[at : at + ROWS_A_MESSAGE] for at in range(0, len(rows), ROWS_A_MESSAGE)] or [[]]
    done = [ProfileDone(run, part, False, "") for part in parts[:-1]]
    return [*done, ProfileDone(run, parts[-1], True, why_not, evidence or {})]
