"""Names of a step's folders and keys: every one carries uid, job, step and restart (docs/interfaces.md 1)."""

import re
from dataclasses import dataclass
from pathlib import Path

SHM = Path("/dev/shm")
_STEP_DIR = re.compile(r"greyhound-(\d+)-(.+)\.([^.]+)\.(\d+)\.n(\d+)")


@dataclass(frozen=True)
class StepName:
    """Which run of which step: job `local-PID` outside Slurm, restart 0 in a job's first run."""

    job: str
    step: str
    restart: int


def step_dir(uid: int, name: StepName, node_index: int, shm: Path = SHM) -> Path:
    """The step directory of one node."""
    return shm / f"greyhound-{uid}-{name.job}.{name.step}.{name.restart}.n{node_index}"


def parse_step_dir(path: Path) -> tuple[int, StepName, int] | None:
    """(uid, step, node index) of a step directory's path, or None when it isn't one."""
    match = _STEP_DIR.fullmatch(path.name)
    if match is None:
        return None
    uid, job, step, restart, index = match.groups()
    return int(uid), StepName(job, step, int(restart)), int(index)


def bus_prefix(uid: int, name: StepName) -> str:
    """Prefix of every Redis key of the step."""
    return f"gh:{uid}.{name.job}.{name.step}.{name.restart}:"
