"""Messages between analyzers and master: JSON `{"v":1,"kind","node","seq","t_ns","data"}`, checked field by field.

Up (analyzer to master): hello, iteration, report, ab_measure, trace_done, profile_done, stand, plugin, bye. Down: set,
ab_window, ab_stop, trace, profile, plan, stop. Kinds of later releases are ignored by their receiver
(`UnknownKindError`), malformed messages are refused (`MessageError`); nothing is ever evaluated.
"""

import json
from dataclasses import dataclass, field
from typing import Annotated

from greyhound.control.fields import Fields, checked, one_of, table_of, text, whole
from greyhound.control.plan_message import PlanOrder, PluginWord
from greyhound.control.profile_message import ProfileDone, ProfileOrder
from greyhound.control.stand_message import Stand

VERSION = 1


class MessageError(ValueError):
    """A message that doesn't follow the definition; the text names the field."""


class UnknownKindError(MessageError):
    """A well-formed message of a kind that this release doesn't know."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"unknown message kind {kind!r}")
        self.kind = kind


@dataclass(frozen=True)
class Hello:
    """A node's analyzer is there."""

    name: str
    host: str
    pid: int


@dataclass(frozen=True)
class RankSample:
    """One rank's clock: last iteration and its seconds, the healthy seconds (0.0: not known yet).

    `locked`: a period was found (once; an evaluation doesn't undo it). `key` names the process on its node
    (ring file), `rank` is the world rank or -1, `end_ns` wall clock, `fingerprint` the digest of an iteration's calls
    (greyhound.trace.fingerprint), empty while unknown; `calls` their number, 0 while unknown.
    """

    key: str
    rank: int
    locked: bool
    alive: bool
    iteration: int
    seconds: float
    healthy_s: float
    end_ns: int
    fingerprint: str = ""
    calls: int = 0


@dataclass(frozen=True)
class IterationBatch:
    """All ranks of a node, once a second; `state` is waiting, tracking or not_intercepted.

    `muted` says why nothing is recorded there for good (not in a window of `greyhound ab`), empty otherwise.
    """

    state: Annotated[str, one_of("waiting", "tracking", "not_intercepted")]
    ranks: list[RankSample] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    muted: str = ""


@dataclass(frozen=True)
class Report:
    """A rank's tracker opened or closed a slow phase, its work changed (`regime`), or it found a `minor` level.

    Iterations are the rank's own, times are wall clock ns; a regime has no slow time.
    """

    key: str
    rank: int
    what: Annotated[str, one_of("opened", "closed", "regime", "minor")]
    onset: int
    onset_ns: int
    at: int
    at_ns: int
    healthy_s: float
    slow_s: float
    slowdown: float
    lost_s: float


@dataclass(frozen=True)
class Bye:
    """A node's analyzer ends; nothing of it follows."""

    reason: str


@dataclass(frozen=True)
class Stop:
    """The master asks the analyzers to end."""

    reason: str


@dataclass(frozen=True)
class Set:
    """What the owner wants from now on, all of it: a mode (`off` mutes) and the share that is reported."""

    mode: Annotated[str, one_of("on", "observe", "off")]
    threshold: float


@dataclass(frozen=True)
class AbWindow:
    """A window of `greyhound ab` to come: from `start_ns` (wall clock) on, with the hooks muted or recording."""

    run: str
    window: int
    muted: bool
    start_ns: int
    seconds: float


@dataclass(frozen=True)
class AbMeasure:
    """What a node measured in a window: iterations (least of its ranks), seconds each, share of muted calls."""

    run: str
    window: int
    ranks: int
    iterations: int
    iteration_s: float
    share: float
    why_not: str


@dataclass(frozen=True)
class AbStop:
    """No more windows; the hooks record again."""

    run: str


@dataclass(frozen=True)
class TraceOrder:
    """Write the calls of all ranks of the next `seconds` into files in the record folder."""

    run: str
    seconds: float


@dataclass(frozen=True)
class TraceDone:
    """A node's recording: names of its files, calls in them, and what went wrong, if anything."""

    run: str
    files: list[str]
    calls: int
    why_not: str


Data = (Hello | IterationBatch | Report | Bye | Stop | Set | AbWindow | AbMeasure | AbStop) | (
    TraceOrder | TraceDone | ProfileOrder | ProfileDone | Stand | PluginWord | PlanOrder
)


@dataclass(frozen=True)
class Message:
    """One message; `node` is the sender's index in the step (-1: the master), `t_ns` wall clock."""

    node: int
    seq: int
    t_ns: int
    data: Data


_KINDS: dict[str, type[Data]] = {
    "hello": Hello,
    "iteration": IterationBatch,
    "report": Report,
    "bye": Bye,
    "stop": Stop,
    "set": Set,
    "ab_window": AbWindow,
    "ab_measure": AbMeasure,
    "ab_stop": AbStop,
    "trace": TraceOrder,
    "trace_done": TraceDone,
    "profile": ProfileOrder,
    "profile_done": ProfileDone,
    "stand": Stand,
    "plugin": PluginWord,
    "plan": PlanOrder,
}
_TABLES = {kind: table_of(data_type) for kind, data_type in _KINDS.items()}
_KIND_OF = {data_type: kind for kind, data_type in _KINDS.items()}
_ENVELOPE: Fields = {"v": whole, "kind": text, "node": whole, "seq": whole, "t_ns": whole}


def encode(message: Message) -> str:
    """The message as one line of JSON."""
    return json.dumps(
        {
            "v": VERSION,
            "kind": _KIND_OF[type(message.data)],
            "node": message.node,
            "seq": message.seq,
            "t_ns": message.t_ns,
            "data": vars(message.data),
        },
        default=vars,  # of the samples; `asdict` takes ten times as long
        separators=(",", ":"),
        allow_nan=False,
    )


def decode(line: str) -> Message:
    """The message in a line of JSON; UnknownKindError or MessageError where it can't be used."""
    try:
        raw = json.loads(line)
        head = checked(_ENVELOPE, raw)
    except (ValueError, RecursionError) as error:
        raise MessageError(f"not a message: {error}") from None
    kind = head["kind"]
    if kind not in _KINDS or head["v"] != VERSION:
        raise UnknownKindError(f"{kind} v{head['v']}")
    try:
        data = _KINDS[kind](**checked(_TABLES[kind], raw.get("data")))
    except ValueError as error:
        raise MessageError(f"{kind}: {error}") from None
    return Message(head["node"], head["seq"], head["t_ns"], data)
