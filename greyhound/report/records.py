"""One step's record, from its event log: totals and episodes, also of a run that was killed or is still running. Pure.

Records are their users' files: whatever stands in them, a report over many jobs must be able to print it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from greyhound.control.events import VERSION, parse_event
from greyhound.control.names import StepName
from greyhound.control.summary import component_of
from greyhound.report.values import MANY, epoch_s, number, text, whole
from greyhound.report.verdicts import verdict_details

NODE_LIST_LETTERS = 65_536
_HEAD = b'{"v":%d,' % VERSION
_KIND = b'"kind":"'
_END = b'"kind":"end"'
_NOT_OVERTAKEN = (b'end"', b'start"', b'verdict"', b'fail_stop"', b'action"')
STILL_OPEN = "open at the record's last word"


class EpisodeRecord(NamedTuple):
    """A fail-slow as the record has it. Iterations are the job's, times seconds since the epoch."""

    id: str
    onset: int
    onset_s: float | None
    end: int | None
    duration_s: float | None
    healthy_s: float
    slow_s: float
    slowdown: float
    lost_s: float
    ended_by: str
    kind: str = ""
    node: str = ""
    bus: str = ""
    peer: str = ""
    rank: int | None = None
    cause: str = ""
    share: float = 0.0
    """Of the time lost, as far as the component explains it."""
    evidence: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    """What else was slow, in words."""
    actions: tuple[str, ...] = ()


class StepRecord(NamedTuple):
    """A run of a step; ``state`` is ended, running or killed (no last word), ``problems`` what couldn't be read."""

    name: StepName
    owner_uid: int
    state: str
    mode: str = ""
    start_s: float | None = None
    last_s: float | None = None
    iterations: int = 0
    healthy_s: float = 0.0
    tracked: int = 0
    unmonitored: str = ""
    episodes: tuple[EpisodeRecord, ...] = ()
    problems: tuple[str, ...] = ()
    node_list: str = ""
    components: tuple[str, ...] = ()
    """What was named beside the episodes: slow from the start, or standing still."""

    @property
    def lost_s(self) -> float:
        """Seconds lost in all episodes."""
        return sum(episode.lost_s for episode in self.episodes)


_NOTHING: dict[str, Any] = {}


def _episode(identity: str, data: dict[str, Any], details: dict[str, Any]) -> EpisodeRecord:
    duration = data.get("duration_s")
    return EpisodeRecord(
        id=identity,
        onset=whole(data.get("onset")) or 0,
        onset_s=epoch_s(data.get("onset_time")),
        end=whole(data.get("end")),
        duration_s=number(duration) if duration is not None else None,
        healthy_s=number(data.get("healthy_s")),
        slow_s=number(data.get("slow_s")),
        slowdown=number(data.get("slowdown")),
        lost_s=max(0.0, number(data.get("lost_s"))),
        ended_by=text(data.get("cause")),
        **details,
    )


def until(row: EpisodeRecord, last_s: float | None) -> EpisodeRecord:
    """An episode whose end nobody wrote, counted until ``last_s``, the record's last sign of life."""
    if row.duration_s is not None:
        return row
    if row.onset_s is None or last_s is None or last_s <= row.onset_s:
        return row._replace(ended_by=STILL_OPEN)
    lasted_s = last_s - row.onset_s
    share = 1.0 - row.healthy_s / row.slow_s if row.slow_s > row.healthy_s > 0 else 0.0
    return row._replace(duration_s=lasted_s, lost_s=lasted_s * share, ended_by=STILL_OPEN)


@dataclass
class Replay:
    """What the events say one after the other."""

    mode: str = ""
    node_list: str = ""
    start_s: float | None = None
    last_time: object = None
    iterations: int = 0
    healthy_s: float = 0.0
    tracked: int = 0
    unmonitored: str = ""
    ended: bool = False
    episodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The newest data of each, read only at the end: of a long log most is overtaken."""
    details: dict[str, dict[str, Any]] = field(default_factory=dict)
    components: tuple[str, ...] = ()

    def take(self, event: dict[str, Any]) -> None:
        raw = event.get("data")
        data: dict[str, Any] = raw if isinstance(raw, dict) else {}
        self.last_time = event.get("time")
        iteration = event.get("iteration")
        if iteration is not None:
            self.iterations = max(self.iterations, whole(iteration) or 0)
        kind, identity = event["kind"], text(event.get("episode"))
        if kind == "start":
            self.mode, self.node_list = text(data.get("mode")), text(data.get("node_list"), NODE_LIST_LETTERS)
            self.start_s = self.start_s or epoch_s(event.get("time"))
        elif kind == "tracking":
            self.tracked, self.unmonitored = max(self.tracked, whole(data.get("ranks")) or 0), ""
        elif kind in ("unmonitored", "not_intercepted"):
            self.unmonitored = text(data.get("reason")) or kind
        elif kind == "end":
            self._end(data)
        elif kind in ("suspect", "recovered") and identity:
            self.healthy_s = number(data.get("healthy_s"))
            self.episodes[identity] = data
        elif kind == "action" and identity:
            known = self.details.setdefault(identity, {})
            known["actions"] = (*known.get("actions", ()), text(data.get("strategy")))[:MANY]
        elif kind in ("verdict", "fail_stop"):
            self._verdict(kind, identity, event, data)

    def _end(self, data: dict[str, Any]) -> None:
        self.ended = True
        self.iterations = max(self.iterations, whole(data.get("iterations")) or 0)
        self.healthy_s = number(data.get("healthy_s"))
        self.tracked = max(self.tracked, whole(data.get("tracked")) or 0)
        self.unmonitored = text(data.get("unmonitored"))
        rows = data.get("episodes")
        for row in rows if isinstance(rows, list) else []:
            identity = text(row.get("id")) if isinstance(row, dict) else ""
            if identity:
                self.episodes[identity] = row

    def _verdict(self, kind: str, identity: str, event: dict[str, Any], data: dict[str, Any]) -> None:
        """The newest that names somebody counts; without an episode it is the step's own."""
        name = component_of(event)
        if kind == "verdict" and identity:
            known = self.details.setdefault(identity, {})
            if name or not known.get("kind"):
                known |= verdict_details(event, data)
        elif name:
            self.components = tuple(dict.fromkeys((*self.components, text(name))))[:MANY]

    def heard(self, status: dict[str, Any]) -> None:
        """The record's copy of the status: written every 30 s, it may know more than the last event."""
        if (epoch_s(status.get("time")) or 0.0) > (epoch_s(self.last_time) or 0.0):
            self.last_time = status.get("time")
        self.iterations = max(self.iterations, whole(status.get("iteration")) or 0)

    def record(self, name: StepName, uid: int, running: bool, problems: Iterable[str]) -> StepRecord:
        """All of it; ``running`` says whether a record without a last word may still get one."""
        last_s = epoch_s(self.last_time)
        rows = [_episode(key, data, self.details.get(key, _NOTHING)) for key, data in self.episodes.items()]
        return StepRecord(
            name=name,
            owner_uid=uid,
            state="ended" if self.ended else ("running" if running else "killed"),
            mode=self.mode,
            start_s=self.start_s,
            last_s=last_s if last_s is not None else self.start_s,
            iterations=self.iterations,
            healthy_s=self.healthy_s,
            tracked=self.tracked,
            unmonitored=self.unmonitored,
            episodes=tuple(rows if self.ended else (until(row, last_s) for row in rows)),
            problems=tuple(problems),
            node_list=self.node_list,
            components=self.components,
        )


def read_log(content: bytes) -> tuple[Replay, list[str]]:
    """`replay` of a log held whole. Of one whose last line is its `end`, which says most, only those lines are parsed
    that add to it, and those that look damaged."""
    lines = content.rstrip()
    before, _, last = lines.rpartition(b"\n")
    end = parse_event(last.decode(errors="replace")) if _END in last else None
    if end is None or end.get("v") != VERSION or not isinstance(end.get("data"), dict):
        return replay(content.decode(errors="replace").split("\n"))
    telling = (line for line in before.split(b"\n") if not _is_overtaken(line))
    state, problems = replay(line.decode(errors="replace") for line in telling)
    state.take(end)
    return state, problems


def _is_overtaken(line: bytes) -> bool:
    """By an `end` behind it; an event of ours names its kind before anything that is its users'."""
    at = line.find(_KIND) + len(_KIND)
    return line.startswith(_HEAD) and line.endswith(b"}") and not line.startswith(_NOT_OVERTAKEN, at)


def replay(lines: Iterable[str]) -> tuple[Replay, list[str]]:
    """The state after all events, and what couldn't be read: damaged lines, events of a newer release."""
    state, damaged, newer = Replay(), 0, 0
    for line in lines:
        event = parse_event(line)
        if event is None:
            damaged += bool(line.strip())
        elif event.get("v") != VERSION:
            newer += 1
        else:
            state.take(event)
    problems = [f"{damaged} damaged lines passed over"] if damaged else []
    problems += [f"{newer} events of another release passed over: use a newer greyhound"] if newer else []
    return state, problems
