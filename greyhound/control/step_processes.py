"""The processes of a step: this user's, with the step's directory in their environment."""

import os
from collections.abc import Iterator
from pathlib import Path

PROC = Path("/proc")


def own_processes(proc: Path, uid: int) -> Iterator[Path]:
    """Their folders in `proc`. OSError where `proc` can't be listed for a moment."""
    with os.scandir(proc) as listing:
        entries = [entry for entry in listing if entry.name.isdigit()]
    for entry in entries:
        try:
            if entry.stat().st_uid == uid:
                yield Path(entry.path)
        except OSError:
            continue


def belongs(process: Path, step_dir: Path) -> bool:
    """Whether GREYHOUND_DIR of the process is `step_dir`; OSError where it has ended."""
    wanted = f"GREYHOUND_DIR={step_dir}".encode()
    return wanted in (process / "environ").read_bytes().split(b"\0")
