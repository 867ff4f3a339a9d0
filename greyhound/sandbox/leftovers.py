"""What a sandbox run left on the machine: processes, shared memory, mounts."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import psutil

from greyhound.sandbox.cluster import Sandbox
from greyhound.sandbox.layout import JOB_RANGE

SHM = Path("/dev/shm")


def shared_memory(sandbox: Sandbox) -> list[str]:
    """Greyhound's entries in /dev/shm that belong to this sandbox: its page and its jobs' step directories."""
    first = sandbox.state.first_job_id
    jobs = range(first, first + JOB_RANGE)
    names = (path.name for path in SHM.iterdir())
    return sorted(name for name in names if name == sandbox.layout.page.name or _job_of(name) in jobs)


def _job_of(name: str) -> int | None:
    """The job id in the name of a step directory (docs/interfaces.md, section 1)."""
    found = re.match(r"greyhound-\d+-(\d+)\.", name)
    return int(found[1]) if found else None


def mounts_below(directory: Path) -> list[str]:
    """Mount points at or below `directory`."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    points = [line.split(" ")[4] for line in lines]
    return [p for p in points if p == str(directory) or p.startswith(f"{directory}/")]


def _mentions(process: psutil.Process, text: str) -> bool:
    try:
        return any(text in word for word in process.cmdline()) or any(
            text in value for value in process.environ().values()
        )
    except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
        return False


def processes_of(text: str) -> list[psutil.Process]:
    """Processes whose command or environment mentions `text` (a sandbox's directory); this one's family excluded."""
    family = {os.getpid(), *(p.pid for p in psutil.Process().parents())}
    return [p for p in psutil.process_iter() if p.pid not in family and _mentions(p, text)]


def memory_bytes(text: str) -> int:
    """Proportional memory (PSS) of the processes that mention `text`."""
    return sum(_pss_bytes(p) for p in processes_of(text))


def _pss_bytes(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
        return 0


def describe(sandbox: Sandbox) -> Iterator[str]:
    """One line for each thing that is left of a sandbox that is down; nothing when all is clean."""
    directory = sandbox.layout.directory
    for process in processes_of(str(directory)):
        yield f"a process is left: {process.pid} {' '.join(process.cmdline())[:100]}"
    for name in shared_memory(sandbox):
        yield f"shared memory is left: {SHM / name}"
    for point in mounts_below(directory):
        yield f"a mount is left: {point}"
    if directory.exists():
        yield f"the sandbox's directory is left: {directory}"
