"""Takes a sandbox down, whole or broken: jobs, processes, directory, shared memory."""

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from greyhound.sandbox import cpu_quota, processes, programs
from greyhound.sandbox.errors import SandboxError
from greyhound.sandbox.layout import JOB_RANGE, SHM, Layout
from greyhound.sandbox.state import State, load

CANCEL_TIMEOUT_S = 8.0


def down(layout: Layout, say: Callable[[str], None]) -> bool:
    """End everything of this sandbox; False if there was nothing.

    Raises SandboxError if a process survives or the directory is not this user's.
    """
    state = load(layout.state)
    _refuse_foreign(layout.directory)
    if state is not None:
        _cancel_jobs(layout, state, say)
    recorded = state.processes if state else []
    found = processes.of_sandbox(layout, recorded)
    survivors = processes.end(lambda: processes.of_sandbox(layout, recorded))
    if found:
        say(f"ended {len(found)} processes")
    if survivors:
        pids = " ".join(str(process.pid) for process in survivors)
        raise SandboxError(f"these processes of {layout.directory} do not end: {pids}; end them, then run down again")
    cpu_quota.lift(f"{cpu_quota.mark_of(layout.page)}.*")
    existed = layout.directory.exists() or layout.page.exists()
    if state is not None:
        _sweep_steps(state, say)
    layout.page.unlink(missing_ok=True)
    _remove(layout.directory)
    return existed or bool(found)


def _refuse_foreign(directory: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        entry = directory.lstat()
        if directory.is_symlink() or entry.st_uid != os.getuid():
            raise SandboxError(f"{directory} belongs to user id {entry.st_uid} or is a link; not touched")


def _cancel_jobs(layout: Layout, state: State, say: Callable[[str], None]) -> None:
    """Cancel while slurmctld runs: slurmstepd's stay behind otherwise. Best effort, processes are ended anyway."""
    if not any(one.name == "slurmctld" and processes.alive(one) for one in state.processes):
        return
    jobs = _jobs(layout)
    if not jobs:
        return
    say(f"cancelling {len(jobs)} jobs")
    _slurm(layout, "scancel", "--quiet", "--signal=KILL", "--full", *jobs)
    _slurm(layout, "scancel", "--quiet", *jobs)
    deadline = time.monotonic() + CANCEL_TIMEOUT_S
    while _jobs(layout) and time.monotonic() < deadline:
        time.sleep(0.2)


def _jobs(layout: Layout) -> list[str]:
    return _slurm(layout, "squeue", "-h", "-o", "%A").split()


def _slurm(layout: Layout, program: str, *arguments: str) -> str:
    path = programs.find(program)
    if path is None:
        return ""
    environment = {"SLURM_CONF": str(layout.conf), "PATH": programs.SEARCH}
    with contextlib.suppress(subprocess.TimeoutExpired):
        return subprocess.run(
            [path, *arguments], capture_output=True, text=True, timeout=5, check=False, env=environment
        ).stdout
    return ""


def _sweep_steps(state: State, say: Callable[[str], None]) -> None:
    """Remove step directories that killed node processes left; the job ids are this sandbox's alone."""
    for path in SHM.glob("greyhound-*-*.*"):
        job = path.name.split("-", 2)[2].split(".")[0]
        ours = job.isdecimal() and 0 <= int(job) - state.first_job_id < JOB_RANGE
        if ours and path.is_dir() and not path.is_symlink():
            say(f"removing {path}, left by job {job}")
            shutil.rmtree(path, ignore_errors=True)


def _remove(directory: Path) -> None:
    if not directory.exists():
        return
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    inside = [mount for mount in mounts if mount.startswith(f"{directory}/")]
    if inside:
        raise SandboxError(f"{inside[0]} is mounted in {directory}: unmount it, then run down again")
    shutil.rmtree(directory)
