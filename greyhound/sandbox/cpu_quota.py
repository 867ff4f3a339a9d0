"""A CPU quota on the rank processes of one node, by the kernel's cpu controller (cgroup v1 or v2; cgroups(7)).

The kernel itself stops the processes for the rest of each period once their quota is used, and counts that in
`cpu.stat`: what an overbooked node or a container's limit does to a training. Each cgroup with ranks in it gets a
limited neighbour `NAME.greyhound-MARK` (below the root: `greyhound-MARK`), so that lifting needs no notes.
"""

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from greyhound.sandbox.errors import SandboxError

PERIOD_S = 0.1
LEAST_QUOTA = 0.01
WORKER_SLACK_NS = 1000
ROUNDS = 20
_ROOT = Path("/sys/fs/cgroup")
_PROC = Path("/proc")


@dataclass(frozen=True)
class Controller:
    """Where the cpu controller is: its mount point, and whether it is a hierarchy of its own (v1)."""

    mount: Path
    v1: bool

    @property
    def members(self) -> str:
        """The file that takes what is moved: single threads in v1, whole processes in v2."""
        return "tasks" if self.v1 else "cgroup.procs"


@dataclass(frozen=True)
class Throttled:
    """`cpu.stat`: periods in which the quota was used up, and the seconds that processes were stopped in them."""

    periods: int
    seconds: float


def mark_of(page: Path, node: str = "") -> str:
    """The mark of the quotas on the users of a stand-in page, on one node or (without it) of all nodes' beginning."""
    stem = page.name.removeprefix("greyhound-").removesuffix(".page")
    return f"{stem}.{node}" if node else stem


def find_controller(root: Path = _ROOT) -> Controller:
    """The machine's cpu controller; SandboxError where there is none that can be written to."""
    first, second = root / "cpu", root / "cgroup.controllers"
    if (first / "cgroup.procs").exists():
        found = Controller(first, v1=True)
    elif second.exists() and "cpu" in second.read_text().split():
        found = Controller(root, v1=False)
    else:
        raise SandboxError(f"no cpu controller in {root} (cgroup v1 or v2): CPU contention can't be injected here")
    if not os.access(found.mount, os.W_OK):
        raise SandboxError(f"{found.mount} can't be written by this user: CPU contention needs root or a delegation")
    return found


def cgroup_of(pid: int, controller: Controller, proc: Path = _PROC) -> str:
    """The process's cgroup for the cpu controller, as in /proc/PID/cgroup (`/` is the root); OSError if it is gone."""
    for line in (proc / str(pid) / "cgroup").read_text().splitlines():
        number, names, path = line.split(":", 2)
        if ("cpu" in names.split(",")) if controller.v1 else (number == "0"):
            return path
    raise SandboxError(f"process {pid} has no cgroup of the cpu controller")


def limited(folder: Path, mark: str, root: Path) -> Path:
    """The limited neighbour of a cgroup's folder; below the root's own. A limited one is its own."""
    if f"greyhound-{mark}" in folder.name:
        return folder
    return root / f"greyhound-{mark}" if folder == root else folder.with_name(f"{folder.name}.greyhound-{mark}")


def origin(folder: Path) -> Path:
    """Where the processes of a limited cgroup came from."""
    before = folder.name.rpartition("greyhound-")[0].removesuffix(".")
    return folder.parent / before if before else folder.parent


def limit(pids: Iterable[int], mark: str, quota: float, period_s: float = PERIOD_S) -> int:
    """Allow the processes `quota` cores together (of each cgroup that they are in); how many were moved.

    In v1 the stand-in's own threads are left out: they are the GPU and the network, which no CPU quota slows.
    Raises SandboxError where the kernel refuses.
    """
    if not LEAST_QUOTA <= quota <= 1024 or not 0.001 <= period_s <= 1:
        raise SandboxError(f"quota {quota:g} of {period_s:g} s: give {LEAST_QUOTA} cores or more, 1 ms to 1 s")
    controller = find_controller()
    moved = 0
    for pid in pids:
        try:
            present = controller.mount / cgroup_of(pid, controller).lstrip("/")
        except OSError:
            continue  # ended meanwhile
        folder = limited(present, mark, controller.mount)
        try:
            _set_quota(controller, folder, quota, period_s)
            _move(controller, pid, folder)
        except OSError as error:
            raise SandboxError(f"{error.filename or folder}: {error.strerror}; no CPU quota can be set here") from None
        moved += 1
    return moved


def _set_quota(controller: Controller, folder: Path, quota: float, period_s: float) -> None:
    period_us, quota_us = round(period_s * 1e6), max(1000, round(quota * period_s * 1e6))
    if not controller.v1:
        with contextlib.suppress(OSError):  # given already, or refused: then cpu.max is missing, which is told
            (folder.parent / "cgroup.subtree_control").write_text("+cpu")
    folder.mkdir(exist_ok=True)
    if controller.v1:
        (folder / "cpu.cfs_period_us").write_text(str(period_us))
        (folder / "cpu.cfs_quota_us").write_text(str(quota_us))
    else:
        with (folder / "cpu.max").open("r+") as file:
            file.write(f"{quota_us} {period_us}")


def _move(controller: Controller, pid: int, folder: Path, proc: Path = _PROC) -> None:
    """Move a process; one that ended meanwhile needs no moving."""
    members = [pid]
    if controller.v1:
        threads = (int(path.name) for path in (proc / str(pid) / "task").iterdir())
        members = [thread for thread in threads if not _is_worker(thread, proc)]
    for member in members:
        with contextlib.suppress(ProcessLookupError):
            (folder / controller.members).write_text(str(member))


def _is_worker(thread: int, proc: Path) -> bool:
    """The stand-in's threads have a timer slack of their own (stream.c)."""
    try:
        return int((proc / str(thread) / "timerslack_ns").read_text()) == WORKER_SLACK_NS
    except (OSError, ValueError):
        return False


def lift(marks: str) -> int:
    """Put every process back where it came from and remove the limited cgroups; how many there were.

    `marks` is a mark, or a pattern of several (`*`). Raises SandboxError where a cgroup doesn't get empty.
    """
    try:
        controller = find_controller()
    except SandboxError:
        return 0
    found = _limited(controller, marks)
    for folder in found:
        _empty(controller, folder)
    return len(found)


def _empty(controller: Controller, folder: Path) -> None:
    """New threads begin where their makers are: hence several rounds."""
    target = origin(folder) / controller.members
    for _ in range(ROUNDS):
        for member in (folder / controller.members).read_text().split():
            with contextlib.suppress(ProcessLookupError):
                target.write_text(member)
        with contextlib.suppress(OSError):
            folder.rmdir()
            return
    raise SandboxError(f"{folder} doesn't get empty: some of its processes still have a CPU quota")


def throttled(mark: str) -> Throttled:
    """What the kernel has counted in the limited cgroups of this mark so far."""
    controller = find_controller()
    periods, seconds = 0, 0.0
    for folder in _limited(controller, mark):
        counted = dict(line.split() for line in (folder / "cpu.stat").read_text().splitlines())
        periods += int(counted.get("nr_throttled", 0))
        seconds += int(counted["throttled_time"]) / 1e9 if controller.v1 else int(counted["throttled_usec"]) / 1e6
    return Throttled(periods, seconds)


def _limited(controller: Controller, marks: str) -> list[Path]:
    return sorted(controller.mount.rglob(f"*greyhound-{marks}"))
