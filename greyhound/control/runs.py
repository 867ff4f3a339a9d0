"""Run to run: what the user's earlier runs of the same work took, and whether this one is slower from its start.

A fail-slow that is there from the first iteration has no change point; earlier runs with the same call fingerprint
(greyhound.trace.fingerprint) are what it can be seen against. One file a user, a line a run, in a folder of our own.
"""

import hashlib
import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from greyhound.control.files import open_to_append, open_to_read, why_not_ours, write_all, write_atomically

SLOWER = 0.05
COMPARED_RUNS = 20
READ_BYTES = 1 << 20
_FILE = "runs.jsonl"
_DIGEST_HEX = 16


@dataclass(frozen=True)
class RunRecord:
    """One run of some work: its healthy seconds an iteration, how many ranks, on which nodes, and when (UTC)."""

    job: str
    step: str
    restart: int
    fingerprint: str
    healthy_s: float
    ranks: int
    nodes: tuple[str, ...]
    time: str

    @property
    def run(self) -> tuple[str, str, int]:
        """Which run it is."""
        return self.job, self.step, self.restart


@dataclass(frozen=True)
class Comparison:
    """This run against ``runs`` earlier ones; ``slowdown`` = healthy_s / earlier_s, ``new_nodes`` none of them had."""

    healthy_s: float
    earlier_s: float
    slowdown: float
    runs: int
    last_job: str
    new_nodes: tuple[str, ...]

    @property
    def is_slower(self) -> bool:
        """Whether the user should hear of it."""
        return self.slowdown >= 1 + SLOWER


def of_job(digests: Sequence[str]) -> str:
    """One digest for a job from its ranks' (in any order): the layout is in how many ranks have which."""
    return hashlib.sha256(" ".join(sorted(digests)).encode()).hexdigest()[:_DIGEST_HEX]


def compare(now: RunRecord, book: Sequence[RunRecord]) -> Comparison | None:
    """``now`` against the book's other runs of the same work and size, newest last; None if there are none.

    The faster half of them is the measure: some may have been slow themselves.
    """
    same = [row for row in book if row.fingerprint == now.fingerprint and row.ranks == now.ranks and row.run != now.run]
    latest = {row.run: row for row in same}  # the last line of a run counts
    earlier = list(latest.values())[-COMPARED_RUNS:]
    if not earlier:
        return None
    fastest = sorted(row.healthy_s for row in earlier)[: (len(earlier) + 1) // 2]
    earlier_s = median(fastest)
    known = {node for row in earlier for node in row.nodes}
    new_nodes = tuple(node for node in now.nodes if node not in known)
    slowdown = now.healthy_s / earlier_s
    return Comparison(now.healthy_s, earlier_s, slowdown, len(earlier), earlier[-1].job, new_nodes)


def _record(line: str) -> RunRecord | None:
    """A line of the book; None where it isn't one (cut off, of another version, damaged)."""
    try:
        row: dict[str, Any] = json.loads(line)
        record = RunRecord(**{**row, "nodes": tuple(row["nodes"])})
        texts = (record.job, record.step, record.fingerprint, record.time, *record.nodes)
        numbers = (record.restart, record.ranks)
        valid = all(isinstance(text, str) for text in texts) and all(isinstance(number, int) for number in numbers)
        return record if valid and math.isfinite(record.healthy_s) and record.healthy_s > 0 else None
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None


class RunBook:
    """The user's book of runs below a record directory (RECORD_DIR/runs-UID/runs.jsonl)."""

    def __init__(self, record_dir: Path) -> None:
        self._path = record_dir / f"runs-{os.getuid()}" / _FILE

    def read(self) -> list[RunRecord]:
        """The newest lines, oldest first; nothing where there is no book. OSError if it isn't ours or can't be read."""
        try:
            fd = open_to_read(self._path, os.geteuid())
        except FileNotFoundError:
            return []
        with os.fdopen(fd, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - READ_BYTES))
            lines = file.read(READ_BYTES).decode(errors="replace").splitlines()
        records = map(_record, lines if size <= READ_BYTES else lines[1:])
        return [record for record in records if record is not None]

    def add(self, record: RunRecord) -> None:
        """Append a run; OSError where that is impossible. A book that grew large keeps its newest half."""
        folder = self._path.parent
        folder.mkdir(mode=0o750, exist_ok=True)
        why = why_not_ours(folder)
        if why:
            raise PermissionError(why)
        fd = open_to_append(self._path)
        try:
            write_all(fd, (json.dumps(asdict(record)) + "\n").encode())
            large = os.fstat(fd).st_size > 2 * READ_BYTES
        finally:
            os.close(fd)
        if large:
            newest = self.read()
            write_atomically(self._path, "".join(json.dumps(asdict(row)) + "\n" for row in newest))
