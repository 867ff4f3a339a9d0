"""Finds processes of the step that use NCCL although no ring appeared: their calls don't pass the hook."""

import os
from pathlib import Path

from greyhound.control.step_processes import PROC, belongs, own_processes

PATIENCE_S = 30.0


def _maps_nccl(process: Path) -> bool:
    return "libnccl" in (process / "maps").read_text(errors="replace")


def _nccl_threads(process: Path) -> bool:
    """NCCL names its proxy and service threads `NCCL ...` (src/proxy.cc)."""
    names = (path.read_text(errors="replace") for path in (process / "task").glob("*/comm"))
    return any(name.startswith("NCCL") for name in names)


def nccl_processes(step_dir: Path, proc: Path = PROC, uid: int | None = None) -> set[int]:
    """Pids of this user's processes in the step whose NCCL is at work (mapped, with threads of its own)."""
    found: set[int] = set()
    try:
        processes = list(own_processes(proc, os.getuid() if uid is None else uid))
    except OSError:
        return found  # out of descriptors for a moment: the next look counts
    for process in processes:
        try:
            if belongs(process, step_dir) and _maps_nccl(process) and _nccl_threads(process):
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
