"""The record folder of a run: RECORD_DIR/JOB/STEP.RESTART, mode 0750.

RECORD_DIR may be open to all users (mode 1777) and job numbers can be foreseen, so both levels below it must be
ours alone: whoever made them first could lay links there, through which we would write to our user's other files.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from greyhound.config import DEFAULT_RECORD_DIR
from greyhound.control.files import why_not_ours
from greyhound.control.names import StepName

MODE = 0o750


@dataclass(frozen=True)
class Record:
    """A writable folder for the run's record, and what to tell the user where it isn't the configured one.

    `root` is the record directory that it lies in, None where it lies in none (the step directory).
    """

    folder: Path
    notice: str = ""
    root: Path | None = None


def folder(record_dir: Path, name: StepName) -> Path:
    """Where the record of a run lies below a record directory."""
    return record_dir / name.job / f"{name.step}.{name.restart}"


def _usable(path: Path) -> str:
    """Make both levels of a record folder; why it can't be used, or nothing."""
    try:
        path.parent.parent.mkdir(parents=True, exist_ok=True)
        for level in (path.parent, path):
            level.mkdir(mode=MODE, exist_ok=True)
            why = why_not_ours(level)
            if why:
                return why
    except OSError as error:
        return error.strerror or str(error)
    return "" if os.access(path, os.W_OK | os.X_OK) else "not writable"


def _usable_step_dir(path: Path) -> str:
    try:
        return why_not_ours(path) or ("" if os.access(path, os.W_OK | os.X_OK) else "not writable")
    except OSError as error:
        return error.strerror or str(error)


def open_record(record_dir: Path, name: StepName, step_dir: Path) -> Record:
    """The configured folder, else the one below the home directory, else the step directory; says which and why."""
    wanted = folder(record_dir, name)
    why = _usable(wanted)
    if not why:
        return Record(wanted, root=record_dir)
    home = Path(DEFAULT_RECORD_DIR).expanduser()
    at_home, lost = folder(home, name), " (lost when the step ends)"
    for other, usable, note, root in ((at_home, _usable, "", home), (step_dir, _usable_step_dir, lost, None)):
        if other != wanted and not usable(other):
            return Record(other, f"record folder {wanted} can't be used: {why}; writing to {other}{note}", root)
    return Record(step_dir, f"record folder {wanted} can't be used: {why}; no other is writable")
