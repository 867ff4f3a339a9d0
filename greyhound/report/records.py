"""One step's record, from its event log: totals and episodes, also of a run that was killed or is still running."""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from greyhound.control.events import VERSION, parse_event
from greyhound.control.files import open_to_read
from greyhound.control.names import StepName

EVENTS = "events.jsonl"
_RUN = re.compile(r"(.+)\.(\d{1,10})", re.ASCII)


@dataclass(frozen=True)
class EpisodeRecord:
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
    cause: str = ""
    actions: tuple[str, ...] = ()


@dataclass(frozen=True)
class StepRecord:
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

    @property
    def lost_s(self) -> float:
        """Seconds lost in all episodes."""
        return sum(episode.lost_s for episode in self.episodes)


def epoch_s(text: object) -> float | None:
    """Seconds since the epoch of an event's time, None for what isn't one."""
    if not isinstance(text, str):
        return None
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value == value else 0.0


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _episode(identity: str, data: dict[str, Any]) -> EpisodeRecord:
    duration = data.get("duration_s")
    return EpisodeRecord(
        id=identity,
        onset=_whole(data.get("onset")) or 0,
        onset_s=epoch_s(data.get("onset_time")),
        end=_whole(data.get("end")),
        duration_s=_number(duration) if duration is not None else None,
        healthy_s=_number(data.get("healthy_s")),
        slow_s=_number(data.get("slow_s")),
        slowdown=_number(data.get("slowdown")),
        lost_s=max(0.0, _number(data.get("lost_s"))),
        ended_by=_text(data.get("cause")),
    )


@dataclass
class _Replay:
    """What the events say one after the other."""

    mode: str = ""
    start_s: float | None = None
    last_s: float | None = None
    iterations: int = 0
    healthy_s: float = 0.0
    tracked: int = 0
    unmonitored: str = ""
    ended: bool = False
    episodes: dict[str, EpisodeRecord] = field(default_factory=dict)
    details: dict[str, dict[str, Any]] = field(default_factory=dict)

    def take(self, event: dict[str, Any]) -> None:
        raw = event.get("data")
        data: dict[str, Any] = raw if isinstance(raw, dict) else {}
        self.last_s = epoch_s(event.get("time")) or self.last_s
        self.iterations = max(self.iterations, _whole(event.get("iteration")) or 0)
        kind, identity = event["kind"], _text(event.get("episode"))
        if kind == "start":
            self.mode, self.start_s = _text(data.get("mode")), epoch_s(event.get("time"))
        elif kind == "tracking":
            self.tracked, self.unmonitored = max(self.tracked, _whole(data.get("ranks")) or 0), ""
        elif kind in ("unmonitored", "not_intercepted"):
            self.unmonitored = _text(data.get("reason")) or kind
        elif kind == "end":
            self._end(data)
        elif kind in ("suspect", "recovered") and identity:
            self.healthy_s = _number(data.get("healthy_s"))
            self.episodes[identity] = _episode(identity, data)
        elif kind in ("verdict", "action") and identity:
            self._detail(kind, identity, event, data)

    def _end(self, data: dict[str, Any]) -> None:
        self.ended = True
        self.iterations = max(self.iterations, _whole(data.get("iterations")) or 0)
        self.healthy_s = _number(data.get("healthy_s"))
        self.tracked = max(self.tracked, _whole(data.get("tracked")) or 0)
        self.unmonitored = _text(data.get("unmonitored"))
        rows = data.get("episodes")
        for row in rows if isinstance(rows, list) else []:
            if isinstance(row, dict) and isinstance(row.get("id"), str):
                self.episodes[row["id"]] = _episode(row["id"], row)

    def _detail(self, kind: str, identity: str, event: dict[str, Any], data: dict[str, Any]) -> None:
        known = self.details.setdefault(identity, {"actions": ()})
        if kind == "action":
            known["actions"] = (*known["actions"], _text(data.get("strategy")))
            return
        raw = event.get("component")
        component: dict[str, Any] = raw if isinstance(raw, dict) else {}
        known |= {key: _text(component.get(key)) for key in ("kind", "node", "bus", "peer")}
        known["cause"] = _text(data.get("cause"))

    def found(self) -> tuple[EpisodeRecord, ...]:
        """The episodes with what later events said about them."""
        rows = (EpisodeRecord(**{**vars(row), **self.details.get(key, {})}) for key, row in self.episodes.items())
        return tuple(rows)


def replay(lines: Iterable[str]) -> tuple[_Replay, list[str]]:
    """The state after all events, and what couldn't be read: damaged lines, events of a newer release."""
    state, damaged, newer = _Replay(), 0, 0
    for line in lines:
        event = parse_event(line) if line.strip() else None
        if event is None:
            damaged += bool(line.strip())
        elif event.get("v") != VERSION:
            newer += 1
        else:
            state.take(event)
    problems = [f"{damaged} damaged lines passed over"] if damaged else []
    problems += [f"{newer} events of another release passed over: use a newer greyhound"] if newer else []
    return state, problems


def read_step(folder: Path, name: StepName, running: bool = False) -> StepRecord | None:
    """The record in a run's folder; None where there is no event log. What can't be read is in ``problems``."""
    path = folder / EVENTS
    try:
        with os.fdopen(open_to_read(path), "rb") as file:
            uid = os.fstat(file.fileno()).st_uid
            state, problems = replay(line.decode(errors="replace") for line in file)
    except FileNotFoundError:
        return None
    except OSError as error:
        return StepRecord(name, -1, "unreadable", problems=(f"{path}: {error.strerror}",))
    return StepRecord(
        name=name,
        owner_uid=uid,
        state="ended" if state.ended else ("running" if running else "killed"),
        mode=state.mode,
        start_s=state.start_s,
        last_s=state.last_s,
        iterations=state.iterations,
        healthy_s=state.healthy_s,
        tracked=state.tracked,
        unmonitored=state.unmonitored,
        episodes=state.found(),
        problems=tuple(f"{path}: {problem}" for problem in problems),
    )


def steps_of(root: Path, job: str, running: bool = False) -> list[StepRecord]:
    """The records of all steps and runs of a job below a record directory, by restart and step."""
    try:
        names = [entry.name for entry in os.scandir(root / job)]
    except OSError:
        return []
    found = []
    for text in names:
        match = _RUN.fullmatch(text)
        record = read_step(root / job / text, StepName(job, match[1], int(match[2])), running) if match else None
        if record is not None:
            found.append(record)
    return sorted(found, key=lambda record: (record.name.restart, record.start_s or 0.0, record.name.step))
