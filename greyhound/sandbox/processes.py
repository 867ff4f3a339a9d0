"""Identifies and ends the processes of a sandbox: by pid and start time, or by marks that only ours carry."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil

from greyhound.sandbox.layout import Layout
from greyhound.sandbox.state import Recorded

MARK = "GREYHOUND_SANDBOX_DAEMON"
"""Environment variable of the daemons (and so of their slurmstepd's); never set for the user's commands."""


def start_ticks(pid: int) -> int | None:
    """Field 22 of /proc/PID/stat (proc(5)): start time in clock ticks since boot; None if the process is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, *fields = text.rpartition(")")[2].split()
    return None if state in "ZX" else int(fields[18])


def alive(one: Recorded) -> bool:
    return start_ticks(one.pid) == one.start_ticks


def of_sandbox(layout: Layout, recorded: Iterable[Recorded]) -> list[psutil.Process]:
    """Recorded daemons, what they started, and orphans of crashes; never the caller or its parents."""
    own = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    known = {one.pid for one in recorded if alive(one)}
    found: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        if process.pid in known or _belongs(process, layout):
            found[process.pid] = process
            found.update({child.pid: child for child in _children(process)})
    return [process for pid, process in found.items() if pid not in own and start_ticks(pid) is not None]


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        children: list[psutil.Process] = process.children(recursive=True)
        return children
    except psutil.Error:
        return []


def _belongs(process: psutil.Process, layout: Layout) -> bool:
    """A daemon or slurmstepd (our mark), a task of a job (its Slurm environment), a node process (its token)."""
    try:
        environment = process.environ()
        if environment.get(MARK) == str(layout.directory):
            return True
        if environment.get("SLURM_CONF") == str(layout.conf):
            return "SLURM_JOB_ID" in environment or "GREYHOUND_TOKEN" in environment
        # slurmstepd writes its title over its environment; the log files that it holds open tell whose it is.
        return process.name() == "slurmstepd" and _holds_open(process, layout.directory)
    except (psutil.Error, OSError):
        return False


def _holds_open(process: psutil.Process, directory: Path) -> bool:
    return any(file.path.startswith(f"{directory}/") for file in process.open_files())


def end(find: Callable[[], list[psutil.Process]], grace_s: float = 2.0, rounds: int = 10) -> list[psutil.Process]:
    """TERM, then KILL whatever `find` still returns, until nothing new shows up; returns the survivors."""
    victims = find()
    for process in victims:
        _signal(process, force=False)
    psutil.wait_procs(victims, timeout=grace_s)
    for _ in range(rounds):
        victims = find()
        if not victims:
            return []
        for process in victims:
            _signal(process, force=True)
        psutil.wait_procs(victims, timeout=grace_s)
    return find()


def _signal(process: psutil.Process, *, force: bool) -> None:
    try:
        if force:
            process.kill()
        else:
            process.terminate()
    except psutil.Error:
        return  # gone meanwhile, or not ours to end: the caller sees it among the survivors
