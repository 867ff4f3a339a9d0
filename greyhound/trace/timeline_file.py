"""Writes a trace-event file (Chrome's format, which Perfetto reads) event by event: nothing is held.

The object form: {"displayTimeUnit", "traceEvents": [...], "otherData": {...}}. Times are microseconds, with three
decimals, so that no nanosecond is lost; strings of events are made by the functions here and nowhere else.
"""

import gzip
import json
from pathlib import Path
from typing import Any, BinaryIO

GZIP_ENDING = ".gz"
_GZIP_LEVEL = 5  # of 9, which takes four times as long for some per cent
_BATCH = 512


def microseconds(ns: int) -> str:
    """Nanoseconds, not negative, as the format has them."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def quoted(text: str) -> str:
    """A text as JSON has it."""
    return json.dumps(text)


def slice_event(head: str, pid: int, tid: int, start_ns: int, took_ns: int, args: str) -> str:
    """A complete event; `head` is `"name":...,"cat":...`, `args` the members of its arguments, both ready as JSON."""
    return (
        f'{{"ph":"X",{head},"pid":{pid},"tid":{tid},"ts":{microseconds(start_ns)},"dur":{microseconds(took_ns)},'
        f'"args":{{{args}}}}}'
    )


def instant_event(name: str, pid: int, tid: int, at_ns: int) -> str:
    """A mark on a track."""
    return f'{{"ph":"i","name":{quoted(name)},"cat":"gap","pid":{pid},"tid":{tid},"ts":{microseconds(at_ns)},"s":"t"}}'


def metadata_event(kind: str, pid: int, tid: int, args: dict[str, Any]) -> str:
    """A name or a place of a process or track: process_name, process_sort_index, thread_name, ..."""
    event = {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": args}
    return json.dumps(event, separators=(",", ":"))


class TimelineFile:
    """`close` completes it; one that wasn't closed is no whole file. OSError passes through."""

    def __init__(self, stream: BinaryIO, compress: bool) -> None:
        """Write to `stream`, gzipped or not; it is the caller's to close."""
        self._out: BinaryIO = (
            gzip.GzipFile("", "wb", _GZIP_LEVEL, stream, mtime=0) if compress else stream  # type: ignore[assignment]
        )
        self._compress = compress
        self._batch: list[str] = []
        self.count = 0
        self._out.write(b'{"displayTimeUnit":"ms","traceEvents":[\n')

    def add(self, event: str) -> None:
        """The next event."""
        self._batch.append(event)
        if len(self._batch) >= _BATCH:
            self._flush()

    def _flush(self) -> None:
        if self._batch:
            begin = ",\n" if self.count else ""
            self._out.write((begin + ",\n".join(self._batch)).encode("ascii"))
            self.count += len(self._batch)
            self._batch.clear()

    def close(self, facts: dict[str, Any]) -> None:
        """The end, with what is to be known of the whole."""
        self._flush()
        self._out.write(b'\n],"otherData":' + json.dumps(facts, allow_nan=False).encode("ascii") + b"}\n")
        if self._compress:
            self._out.close()
        else:
            self._out.flush()


def is_compressed(path: Path) -> bool:
    """Whether a file of this name is gzipped."""
    return path.name.endswith(GZIP_ENDING)
