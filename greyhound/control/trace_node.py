"""A node's part in `greyhound trace record`: the calls of its ranks for some seconds, in one file a rank.

Bounded in time and size, whatever happens to the master. Files are compressed and written by a thread, so that a slow
disk doesn't hold up the reading of the rings.
"""

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from greyhound.control.fields import LIST_LIMIT, TEXT_LIMIT
from greyhound.control.messages import TraceDone, TraceOrder
from greyhound.trace.dump import DumpWriter

MOST_SECONDS = 600.0
MOST_BYTES = 256 << 20  # a node, before compression
SUFFIX = ".ghdump"


class Recordable(Protocol):
    """What a recording needs of a rank's watch."""

    @property
    def key(self) -> str: ...

    def dump_writer(self) -> DumpWriter: ...

    def communicators(self) -> NDArray[np.void]: ...

    def record_into(self, writer: DumpWriter | None) -> None: ...


@dataclass
class _Recording:
    order: TraceOrder
    begin_s: float
    end_s: float
    writers: dict[str, DumpWriter] = field(default_factory=dict)
    comms: dict[str, NDArray[np.void]] = field(default_factory=dict)
    why_not: str = ""

    @property
    def held_bytes(self) -> int:
        return sum(writer.held_bytes for writer in self.writers.values())


class TraceNode:
    """At most one recording at a time; `step` gives its result when the files are written."""

    def __init__(self, node: int, folder: Path | None, most_bytes: int = MOST_BYTES) -> None:
        """`folder` is the record folder, None where this node has none that lasts."""
        self._node = node
        self._folder = folder
        self._most_bytes = most_bytes
        self._recording: _Recording | None = None
        self._saving: threading.Thread | None = None
        self._done: SimpleQueue[TraceDone] = SimpleQueue()

    def take(self, order: TraceOrder, now_s: float) -> None:
        """Begin at `now_s` (monotonic); one that can't be is answered at once."""
        if self._folder is None:
            self._done.put(TraceDone(order.run, [], 0, "the record folder can't be written on this node"))
        elif self._recording is not None or self._saving is not None:
            self._done.put(TraceDone(order.run, [], 0, "another recording is under way on this node"))
        else:
            self._recording = _Recording(order, now_s, now_s + min(order.seconds, MOST_SECONDS))

    def step(self, now_s: float, watches: Iterable[Recordable]) -> list[TraceDone]:
        """After the rings were read: take in new ranks, end what is over; the results that are ready."""
        if self._recording is not None:
            self._follow(self._recording, now_s, watches)
        if self._saving is not None and not self._saving.is_alive():
            self._saving = None
        ready = []
        while True:
            try:
                ready.append(self._done.get_nowait())
            except Empty:
                return ready

    def _follow(self, recording: _Recording, now_s: float, watches: Iterable[Recordable]) -> None:
        listed = list(watches)
        full = recording.held_bytes >= self._most_bytes
        if full:
            took_s = now_s - recording.begin_s
            recording.why_not = f"stopped after {took_s:.1f} s at the limit of {self._most_bytes >> 20} MiB a node"
        if full or now_s >= recording.end_s:
            self._end(recording, listed)
            return
        for watch in listed:
            if watch.key not in recording.writers and len(recording.writers) < LIST_LIMIT:
                recording.writers[watch.key] = writer = watch.dump_writer()
                writer.facts["run"] = recording.order.run
                watch.record_into(writer)
            # A rank may end meanwhile, and its ring go.
            recording.comms[watch.key] = watch.communicators()

    def _end(self, recording: _Recording, watches: list[Recordable]) -> None:
        for watch in watches:
            watch.record_into(None)
        self._recording = None
        self._saving = threading.Thread(target=self._save, args=(recording,), name="gh-trace", daemon=True)
        self._saving.start()

    def finish(self, watches: Iterable[Recordable], limit_s: float) -> list[TraceDone]:
        """The node process ends: write what there is, within `limit_s`."""
        if self._recording is not None:
            self._recording.why_not = "the job ended"
            self._end(self._recording, list(watches))
        if self._saving is not None:
            self._saving.join(limit_s)
        return self.step(0.0, ())

    def _save(self, recording: _Recording) -> None:
        assert self._folder is not None
        files: list[str] = []
        calls, why_not = 0, recording.why_not
        try:
            for key, writer in recording.writers.items():
                if writer.count:
                    path = self._folder / self._name(recording, writer)
                    writer.save(path, recording.comms[key])
                    files.append(path.name)
                    calls += writer.count
        except OSError as error:
            why_not = f"can't be written to {self._folder}: {error.strerror or error}"
        except MemoryError:
            why_not = "not enough memory for the calls of one rank"
        if not calls and not why_not:
            why_not = "no rank made a call" if recording.writers else "no rank here"
        self._done.put(TraceDone(recording.order.run, files, calls, why_not[:TEXT_LIMIT]))

    def _name(self, recording: _Recording, writer: DumpWriter) -> str:
        rank = f"rank{writer.facts['world_rank']}." if writer.facts["world_rank"] >= 0 else ""
        return f"trace.{recording.order.run[:8]}.node{self._node}.{rank}pid{writer.facts['pid']}{SUFFIX}"
