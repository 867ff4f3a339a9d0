"""Finds processes of the step that use NCCL although no ring appeared: their calls don't pass the hook."""

import os
from collections.abc import Iterator
from pathlib import Path

PATIENCE_S = 30.0
PROC = Path("/proc")


def _own_processes(proc: Path, uid: int) -> Iterator[Path]:
    try:
        with os.scandir(proc) as listing:
            entries = [entry for entry in listing if entry.name.isdigit()]
    except OSError:
        return  # out of descriptors for a moment: the next look counts
    for entry in entries:
        try:
            if entry.stat().st_uid == uid:
                yield Path(entry.path)
        except OSError:
            continue


def _belongs(process: Path, step_dir: Path) -> bool:
    wanted = f"GREYHOUND_DIR={step_dir}".encode()
    return wanted in (process / "environ").read_bytes().split(b"\0")


def _maps_nccl(process: Path) -> bool:
    return "libnccl" in (process / "maps").read_text(errors="replace")


def _nccl_threads(process: Path) -> bool:
    """NCCL names its proxy and service threads `NCCL ...` (src/proxy.cc)."""
    names = (path.read_text(errors="replace") for path in (process / "task").glob("*/comm"))
    return any(name.startswith("NCCL") for name in names)


def nccl_processes(step_dir: Path, proc: Path = PROC, uid: int | None = None) -> set[int]:
    """Pids of this user's processes in the step whose NCCL is at work (mapped, with threads of its own)."""
    found = set()
    for process in _own_processes(proc, os.getuid() if uid is None else uid):
        try:
            if _belongs(process, step_dir) and _maps_nccl(process) and _nccl_threads(process):
                found.add(int(process.name))
        except OSError:
            continue
    return found


class InterceptCheck:
    """Says `not intercepted` once the same process has used NCCL for PATIENCE_S without a ring."""

    def __init__(self, step_dir: Path, proc: Path = PROC) -> None:
        self._step_dir = step_dir
        self._proc = proc
        self._since_s: dict[int, float] = {}

    def missed(self, now_s: float) -> bool:
        """Look once, at `now_s` (monotonic)."""
        found = nccl_processes(self._step_dir, self._proc)
        self._since_s = {pid: self._since_s.get(pid, now_s) for pid in found}
        return any(now_s - since_s >= PATIENCE_S for since_s in self._since_s.values())
