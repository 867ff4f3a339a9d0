"""The job's event log: JSON lines, appended and flushed one by one, readable while the job runs."""

import errno
import json
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from greyhound.control.files import open_to_append, open_to_read
from greyhound.control.names import StepName

VERSION = 1
CHUNK_BYTES = 16 * 2**20
MOST_BYTES = (
    64 * 2**20
)  # about 150,000 events, of which a job that changes its state every minute for weeks writes 30,000
ALWAYS = ("unmonitored", "end")
KINDS = frozenset(
    {"start", "waiting", "not_intercepted", "tracking", "regime", "suspect", "profile", "freeze", "benchmark", "thaw"}
    | {"verdict", "plan", "action", "undo", "recovered", "fail_stop", "unmonitored", "end"}
    | {"muted", "unmuted", "setting", "ab", "minor", "runs", "trace"}
)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Component:
    """What an event is about: kind as in `localize.model.KINDS`, or `node` or `rank`; unknown parts are None."""

    kind: str
    node: str | None = None
    bus: str | None = None
    rank: int | None = None
    peer: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """The form of docs/interfaces.md."""
        return {"kind": self.kind, "node": self.node, "bus": self.bus, "rank": self.rank, "peer": self.peer}


class Emit(Protocol):
    """Takes an event of the job (EventLog.append without the path)."""

    def __call__(
        self,
        kind: str,
        t_s: float,
        data: dict[str, Any] | None = None,
        episode: str | None = None,
        iteration: int | None = None,
        component: Component | None = None,
    ) -> object: ...


def utc(t_s: float) -> str:
    """Seconds since the epoch as ISO 8601 in UTC, milliseconds."""
    return datetime.fromtimestamp(t_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class EventLog:
    """Appends events to `events.jsonl`. A full disk is logged once and the event dropped; the job goes on.

    A log of MOST_BYTES takes nothing but what a job must not end without (ALWAYS). Where only a part of an event could
    be written, the next one begins a new line.
    """

    def __init__(self, path: Path, name: StepName) -> None:
        self._path = path
        self._name = name
        self._seq = _last_seq(path)
        self.trouble = ""
        """Why events get lost, once they do."""
        self._torn = _ends_torn(path)

    def append(
        self,
        kind: str,
        t_s: float,
        data: dict[str, Any] | None = None,
        episode: str | None = None,
        iteration: int | None = None,
        component: Component | None = None,
    ) -> dict[str, Any]:
        """Write one event of one of KINDS at wall clock `t_s`; returns it as written."""
        assert kind in KINDS, kind
        self._seq += 1
        event = {
            "v": VERSION,
            "seq": self._seq,
            "time": utc(t_s),
            "job": self._name.job,
            "step": self._name.step,
            "restart": self._name.restart,
            "kind": kind,
            "episode": episode,
            "iteration": iteration,
            "component": component.as_dict() if component else None,
            "data": data or {},
        }
        self._write(json.dumps(event, separators=(",", ":"), ensure_ascii=False) + "\n", kind in ALWAYS)
        return event

    def _write(self, line: str, always: bool) -> None:
        try:
            fd = open_to_append(self._path)
            try:
                if always or os.fstat(fd).st_size < MOST_BYTES:
                    self._put(fd, line.encode(errors="replace"))
                else:
                    self._tell(f"{self._path} has {MOST_BYTES >> 20} MiB: no more events but the last")
            finally:
                os.close(fd)
        except OSError as error:
            self._tell(f"events can't be written to {self._path}: {error.strerror}")

    def _tell(self, trouble: str) -> None:
        if not self.trouble:
            self.trouble = trouble
            log.warning("%s", trouble)

    def _put(self, fd: int, line: bytes) -> None:
        content = b"\n" + line if self._torn else line
        while content:
            written = os.write(fd, content)
            if written == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._torn = content[written - 1 : written] != b"\n"
            content = content[written:]


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _last_seq(path: Path) -> int:
    return max((_number(event.get("seq")) for event in read_events(path)), default=0)


def _ends_torn(path: Path) -> bool:
    """Whether who wrote before us died in the middle of a line."""
    try:
        with os.fdopen(open_to_read(path), "rb") as file:
            size_bytes = file.seek(0, os.SEEK_END)
            file.seek(max(0, size_bytes - 1))
            return file.read(1) not in (b"", b"\n")
    except OSError:
        return False


def parse_event(line: str) -> dict[str, Any] | None:
    """An event from one line, or None for a line that isn't one (half written, foreign)."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and isinstance(event.get("kind"), str) else None


def read_events(path: Path) -> Iterator[dict[str, Any]]:
    """All events of a log, oldest first; nothing if the file isn't there or can't be read."""
    try:
        with os.fdopen(open_to_read(path), encoding="utf-8", errors="replace") as lines:
            for line in lines:
                event = parse_event(line)
                if event is not None:
                    yield event
    except OSError:
        return


class EventTail:
    """Follows an event log that grows, or doesn't exist yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new(self) -> list[dict[str, Any]]:
        """Events completed since the last call."""
        events: list[dict[str, Any]] = []
        try:
            with os.fdopen(open_to_read(self._path), "rb") as file:
                while chunk := self._piece(file):
                    found = [parse_event(line) for line in chunk.decode(errors="replace").split("\n")]
                    events += [event for event in found if event is not None]
        except OSError:
            pass  # not made yet, or not readable now
        return events

    def _piece(self, file: BinaryIO) -> bytes:
        """The next whole lines, CHUNK_BYTES at most; a chunk without an end of line is no event and passed over."""
        file.seek(self._offset)
        chunk = file.read(CHUNK_BYTES)
        piece = chunk[: chunk.rfind(b"\n") + 1] or (chunk if len(chunk) == CHUNK_BYTES else b"")
        self._offset += len(piece)
        return piece
