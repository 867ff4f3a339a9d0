"""Where a step's rings are: in its directory and, of tasks with another root or /dev/shm (containers), below theirs.

A container's ring is reached through /proc/PID/root, name by name and never through a link, which might lead out of
its root. Its folder is held by a descriptor: it stays readable when the process that led there has ended.
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from greyhound.control.step_processes import PROC, belongs, own_processes

PREFIX = "ring."
SEARCH_S = 5.0
RARE_SEARCH_S = 30.0  # where the step's own directory has rings, as it nearly always has

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_WAY = _FOLDER | os.O_PATH


@dataclass(frozen=True)
class RingFile:
    """One ring. `key` is unique on this node, `pid` the process's number here where it has another one inside."""

    key: str
    path: Path
    pid: int | None = None

    @property
    def is_elsewhere(self) -> bool:
        """Whether it is in a root or a /dev/shm of the process's own."""
        return self.key != self.path.name

    def settle(self) -> None:
        """Once it is mapped: a file in another root needs its name no more; perhaps nobody could remove it later."""
        if self.is_elsewhere:
            with contextlib.suppress(OSError):
                self.path.unlink()


def ring_paths(folder: Path) -> list[Path]:
    """Ring files of a folder, by name; nothing if it is gone."""
    return [folder / name for name in _ring_names(folder)]


def _ring_names(folder: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return sorted(name for name in os.listdir(folder) if name.startswith(PREFIX))  # noqa: PTH208 - names are enough
    return []


@dataclass
class _Folder:
    """A step directory in another root. `pids`: the numbers here of its processes by their name of a ring."""

    descriptor: int
    parent: int
    name: str
    key: str
    pids: dict[str, int] = field(default_factory=dict)

    def rings(self) -> Iterator[RingFile]:
        for path in ring_paths(Path(f"/proc/self/fd/{self.descriptor}")):
            yield RingFile(f"{path.name}@{self.key}", path, self.pids.get(path.name))

    def remove(self) -> None:
        """Remove what is ours there, and let go of it."""
        for path in ring_paths(Path(f"/proc/self/fd/{self.descriptor}")):
            with contextlib.suppress(OSError):
                path.unlink()
        with contextlib.suppress(OSError):
            os.rmdir(self.name, dir_fd=self.parent)
        self.close()

    def close(self) -> None:
        os.close(self.descriptor)
        os.close(self.parent)


def _open_below(root: Path, path: Path) -> _Folder:
    """The folder `path` as a process with this `root` sees it; OSError where it or one on the way is a link."""
    at = os.open(root, _WAY & ~os.O_NOFOLLOW)
    try:
        for name in path.parts[1:-1]:
            below = os.open(name, _WAY, dir_fd=at)
            os.close(at)
            at = below
        descriptor = os.open(path.name, _FOLDER, dir_fd=at)
    except OSError:
        os.close(at)
        raise
    status = os.fstat(descriptor)
    folder = _Folder(descriptor, at, path.name, f"{status.st_dev:x}.{status.st_ino:x}")
    if status.st_uid != os.geteuid():
        folder.close()
        raise PermissionError(f"{path} below {root} belongs to uid {status.st_uid}")
    return folder


def _mounts(process: Path) -> int:
    return (process / "ns/mnt").stat().st_ino


def _has_other_root(process: Path, mounts: int) -> bool:
    """Whether the process has a root or mounts of its own, ours being `mounts`."""
    return _mounts(process) != mounts or str((process / "root").readlink()) != "/"


def _ring_name(process: Path) -> str:
    """The name of the ring that the process would make: with its number in its own PID namespace."""
    stat = (process / "stat").read_text(errors="replace")
    start = stat[stat.rfind(")") + 2 :].split()[19]
    status = (process / "status").read_text(errors="replace")
    numbers = [line.split() for line in status.splitlines() if line.startswith("NSpid:")]
    return f"{PREFIX}{numbers[0][-1] if numbers else process.name}.{start}"


class RingSearch:
    """Finds the rings of one step, again and again. Not for several threads."""

    def __init__(self, step_dir: Path, proc: Path = PROC) -> None:
        self._step_dir = step_dir
        self._proc = proc
        self._folders: dict[str, _Folder] = {}
        self._own: dict[str, RingFile] = {}
        self._due_s = 0.0

    def find(self, now_s: float) -> list[RingFile]:
        """All rings now (`now_s` is monotonic); roots of other processes are looked through every SEARCH_S at most."""
        own = self._find_own()
        if now_s >= self._due_s:
            self._due_s = now_s + (RARE_SEARCH_S if own and not self._folders else SEARCH_S)
            with contextlib.suppress(OSError):  # out of descriptors for a moment: the next look counts
                self._look_elsewhere()
        return own + [ring for folder in self._folders.values() for ring in folder.rings()]

    def _find_own(self) -> list[RingFile]:
        """Those in the step's own directory; of many rings it is the same ones each second."""
        known, step_dir = self._own, self._step_dir
        self._own = {name: known.get(name) or RingFile(name, step_dir / name) for name in _ring_names(step_dir)}
        return list(self._own.values())

    def _look_elsewhere(self) -> None:
        seen: dict[str, dict[str, int]] = {}
        mounts = _mounts(self._proc / "self")
        for process in own_processes(self._proc, os.geteuid()):
            try:
                if not _has_other_root(process, mounts) or not belongs(process, self._step_dir):
                    continue
                key = self._keep(_open_below(process / "root", self._step_dir))
                if key:
                    seen.setdefault(key, {})[_ring_name(process)] = int(process.name)
            except OSError:
                continue  # it ended, or made no ring yet
        for key in [key for key in self._folders if key not in seen]:
            self._folders.pop(key).remove()
        for key, pids in seen.items():
            self._folders[key].pids = pids

    def _keep(self, folder: _Folder) -> str:
        """Keeps a folder that is new; its key, or "" for the step's own directory."""
        try:
            own = self._step_dir.stat()
        except OSError:
            folder.close()
            raise
        if folder.key == f"{own.st_dev:x}.{own.st_ino:x}":
            folder.close()
            return ""
        if folder.key in self._folders:
            folder.close()
        else:
            self._folders[folder.key] = folder
        return folder.key

    def close(self) -> None:
        """Remove the folders in other roots, which nobody else would, and what is left in them."""
        while self._folders:
            self._folders.popitem()[1].remove()
