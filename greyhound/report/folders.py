"""Finds and reads the records of jobs below record directories, without trusting who wrote them."""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from greyhound.control.events import MOST_BYTES
from greyhound.control.files import open_to_read
from greyhound.control.names import StepName
from greyhound.control.status import FILE, read_status
from greyhound.report.records import Replay, StepRecord, read_log, replay

EVENTS = "events.jsonl"
UNREADABLE = "unreadable"
_READ_BYTES = 2 * MOST_BYTES  # no log of ours is longer (events.py); its user may make one that is
_AT_ONCE_BYTES = 2**20
_RUN = re.compile(r"(.+)\.(\d{1,10})", re.ASCII)
_JOB = re.compile(r"[1-9]\d{0,9}", re.ASCII)


def read_step(folder: str | Path, name: StepName, running: bool = False) -> StepRecord | None:
    """The record in a run's folder; None where there is no event log. What can't be read is in ``problems``."""
    path = f"{folder}/{EVENTS}"
    try:
        fd = open_to_read(path)
        try:
            facts = os.fstat(fd)
            if facts.st_size > _READ_BYTES:
                return _unreadable(name, f"{path}: {facts.st_size >> 20} MiB, no log of ours is that long")
            state, problems = _read(fd, facts.st_size)
        finally:
            os.close(fd)
    except FileNotFoundError:
        return None
    except OSError as error:
        return _unreadable(name, f"{path}: {error.strerror}")
    if not state.ended:
        state.heard(read_status(Path(folder, FILE), facts.st_uid) or {})
    return state.record(name, facts.st_uid, running, (f"{path}: {problem}" for problem in problems))


def _read(fd: int, size_bytes: int) -> tuple[Replay, list[str]]:
    """What a log says that is open; a long one isn't held whole."""
    if size_bytes < _AT_ONCE_BYTES:
        content = os.read(fd, size_bytes)
        if len(content) == size_bytes:
            return read_log(content)
    with open(fd, "rb", closefd=False) as file:
        file.seek(0)
        return replay(line.decode(errors="replace") for line in file)


def _unreadable(name: StepName, problem: str) -> StepRecord:
    return StepRecord(name, -1, UNREADABLE, unmonitored="its record can't be read", problems=(problem,))


def _below(root: Path, job: str, running: bool) -> Iterator[StepRecord]:
    folder = f"{root}/{job}"
    try:
        names = [entry.name for entry in os.scandir(folder)]
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        if _is_there(folder):
            yield _unreadable(StepName(job, "", 0), f"{folder}: {error.strerror}")
        return
    for text in names:
        match = _RUN.fullmatch(text)
        record = read_step(f"{folder}/{text}", StepName(job, match[1], int(match[2])), running) if match else None
        if record is not None:
            yield record


def _is_there(folder: str) -> bool:
    """False also where we may not even look, as in another's home."""
    try:
        os.lstat(folder)
    except OSError:
        return False
    return True


def steps_of(roots: Iterable[Path], job: str, running: bool = False) -> list[StepRecord]:
    """The records of all steps and runs of a job, by restart and step.

    A stranger's folder in a directory that is open to all may bear the job's number: it hides no record elsewhere.
    """
    found = [record for root in roots for record in _below(root, job, running)]
    if len(found) < 2:
        return found
    return sorted(found, key=lambda record: (record.name.restart, record.start_s or 0.0, record.name.step))


def jobs_below(roots: Iterable[Path]) -> list[str]:
    """Numbers of all jobs that have a record in one of the directories, in order; local-PID is no job of Slurm's."""
    found: set[str] = set()
    for root in roots:
        try:
            found.update(entry.name for entry in os.scandir(root) if _JOB.fullmatch(entry.name))
        except OSError:
            continue
    return sorted(found, key=int)
