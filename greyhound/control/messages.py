"""Messages between analyzers and master: JSON `{"v":1,"kind","node","seq","t_ns","data"}`, checked field by field.

Up (analyzer to master): hello, iteration, report, ab_measure, trace_done, bye. Down: set, ab_window, ab_stop, trace,
stop. Kinds of later releases are ignored by their receiver (`UnknownKindError`), malformed messages are refused
(`MessageError`); nothing is ever evaluated.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

VERSION = 1
TEXT_LIMIT = 400
LIST_LIMIT = 4096
REAL_LIMIT = 1e12  # seconds or slow-downs: thirty thousand years; sums and products of such stay finite


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
    (greyhound.trace.fingerprint), empty while unknown.
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


@dataclass(frozen=True)
class IterationBatch:
    """All ranks of a node, once a second; `state` is waiting, tracking or not_intercepted.

    `muted` says why nothing is recorded there for good (not in a window of `greyhound ab`), empty otherwise.
    """

    state: str
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
    what: str
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

    mode: str
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


Data = Hello | IterationBatch | Report | Bye | Stop | Set | AbWindow | AbMeasure | AbStop | TraceOrder | TraceDone


@dataclass(frozen=True)
class Message:
    """One message; `node` is the sender's index in the step (-1: the master), `t_ns` wall clock."""

    node: int
    seq: int
    t_ns: int
    data: Data


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > TEXT_LIMIT:
        raise ValueError(f"not a text of at most {TEXT_LIMIT} characters")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise ValueError("not valid Unicode: half a surrogate pair")
    return value


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**64:
        raise ValueError("not a whole number")
    return value


def _real(value: Any) -> float:
    # The comparison holds neither for NaN nor for the infinities, and takes integers of any length.
    if isinstance(value, bool) or not isinstance(value, int | float) or not -REAL_LIMIT <= value <= REAL_LIMIT:
        raise ValueError(f"not a number from -{REAL_LIMIT:g} to {REAL_LIMIT:g}")
    return float(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("not true or false")
    return value


def _one_of(*allowed: str) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if value not in allowed:
            raise ValueError(f"not one of {', '.join(allowed)}")
        return str(value)

    return check


def _list_of(check: Callable[[Any], Any]) -> Callable[[Any], list[Any]]:
    def check_list(value: Any) -> list[Any]:
        if not isinstance(value, list) or len(value) > LIST_LIMIT:
            raise ValueError(f"not a list of at most {LIST_LIMIT:,} items")
        return [check(item) for item in value]

    return check_list


Fields = dict[str, Callable[[Any], Any]]


def _fields(table: Fields, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("not an object")
    checked = {}
    for name, check in table.items():
        if name not in value:
            raise ValueError(f"field {name!r} is missing")
        try:
            checked[name] = check(value[name])
        except ValueError as error:
            raise ValueError(f"field {name!r}: {error}") from None
    return checked


_SAMPLE: Fields = {
    "key": _text,
    "rank": _whole,
    "locked": _flag,
    "alive": _flag,
    "iteration": _whole,
    "seconds": _real,
    "healthy_s": _real,
    "end_ns": _whole,
    "fingerprint": _text,
}


def _sample(value: Any) -> RankSample:
    return RankSample(**_fields(_SAMPLE, value))


_KINDS: dict[str, tuple[type[Data], Fields]] = {
    "hello": (Hello, {"name": _text, "host": _text, "pid": _whole}),
    "iteration": (
        IterationBatch,
        {
            "state": _one_of("waiting", "tracking", "not_intercepted"),
            "ranks": _list_of(_sample),
            "notices": _list_of(_text),
            "muted": _text,
        },
    ),
    "report": (
        Report,
        {
            "key": _text,
            "rank": _whole,
            "what": _one_of("opened", "closed", "regime", "minor"),
            "onset": _whole,
            "onset_ns": _whole,
            "at": _whole,
            "at_ns": _whole,
            "healthy_s": _real,
            "slow_s": _real,
            "slowdown": _real,
            "lost_s": _real,
        },
    ),
    "bye": (Bye, {"reason": _text}),
    "stop": (Stop, {"reason": _text}),
    "set": (Set, {"mode": _one_of("on", "observe", "off"), "threshold": _real}),
    "ab_window": (
        AbWindow,
        {"run": _text, "window": _whole, "muted": _flag, "start_ns": _whole, "seconds": _real},
    ),
    "ab_measure": (
        AbMeasure,
        {
            "run": _text,
            "window": _whole,
            "ranks": _whole,
            "iterations": _whole,
            "iteration_s": _real,
            "share": _real,
            "why_not": _text,
        },
    ),
    "ab_stop": (AbStop, {"run": _text}),
    "trace": (TraceOrder, {"run": _text, "seconds": _real}),
    "trace_done": (TraceDone, {"run": _text, "files": _list_of(_text), "calls": _whole, "why_not": _text}),
}
_KIND_OF = {data_type: kind for kind, (data_type, _) in _KINDS.items()}
_ENVELOPE: Fields = {"v": _whole, "kind": _text, "node": _whole, "seq": _whole, "t_ns": _whole}


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


def decode(text: str) -> Message:
    """The message in a line of JSON; UnknownKindError or MessageError where it can't be used."""
    try:
        raw = json.loads(text)
        head = _fields(_ENVELOPE, raw)
    except (ValueError, RecursionError) as error:
        raise MessageError(f"not a message: {error}") from None
    kind = head["kind"]
    if kind not in _KINDS or head["v"] != VERSION:
        raise UnknownKindError(f"{kind} v{head['v']}")
    data_type, table = _KINDS[kind]
    try:
        data = data_type(**_fields(table, raw.get("data")))
    except ValueError as error:
        raise MessageError(f"{kind}: {error}") from None
    return Message(head["node"], head["seq"], head["t_ns"], data)
