"""What localisation works on, and what it says. Plain data: no clock, no I/O.

Times of different nodes are on different clocks until `clocks` has aligned them.
"""

from dataclasses import dataclass, field

KINDS = ("gpu", "link", "cpu", "input", "storage", "unknown")
"""What can be slow. `input`: reading training data; `storage`: writing checkpoints."""


@dataclass(frozen=True)
class Communicator:
    """One that a rank is a member of: its hash (equal for all members), its size and this rank's number in it."""

    hash: int
    size: int
    rank: int


@dataclass(frozen=True)
class TimedCall:
    """One call whose time on the GPU is known; `seq` is its number on the communicator, equal for all members.

    `entry_ns`: the host called; `start_ns`: the GPU had reached it, all earlier work of its stream being done (the
    rank's arrival); `end_ns`: it was over. All on the node's wall clock. `peer` is -1 for collectives. Calls of one
    group share its start and end.
    """

    comm: int
    seq: int
    op: int
    bytes: int
    peer: int
    entry_ns: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class RankProfile:
    """What one rank measured over a few iterations.

    Lists have an item an iteration, in seconds. `own_s`: no timed call was under way on its GPU, so it worked for
    itself or was idle; `host_s`: the part of it before the host issued the next call (launch, data loading, Python);
    `boundary_s`: the part of it in the one gap around the end of the iteration (data loading, checkpoints).
    `work` is the fingerprint of its calls without ranks: equal for ranks with equal roles. Where no GPU times are
    known `timed` is False, and all times are the host's: entry, entry, return.
    """

    node: int
    key: str
    rank: int
    bus: str
    work: str
    timed: bool
    iteration_s: tuple[float, ...]
    own_s: tuple[float, ...]
    host_s: tuple[float, ...]
    boundary_s: tuple[float, ...]
    comms: tuple[Communicator, ...] = ()
    calls: tuple[TimedCall, ...] = ()


@dataclass(frozen=True)
class Suspect:
    """A component that is slow: what it is, where, how much, how sure, and why that is believed.

    `ratio`: its time against that of comparable ones (or its own healthy one); `share`: of the lost time that it
    explains, 0 to 1; `confidence`: 0 to 1. `ranks` are its own (a link: both ends; a group: its members).
    """

    kind: str
    nodes: tuple[int, ...]
    ranks: tuple[int, ...]
    bus: str = ""
    peer: int = -1
    ratio: float = 1.0
    share: float = 0.0
    confidence: float = 0.0
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """What is slow, worst first. Without suspects nobody is blamed, and `abstained` says why."""

    suspects: tuple[Suspect, ...] = ()
    explained: float = 0.0
    abstained: str = ""
    notes: tuple[str, ...] = field(default=())
