"""What the kernel counts for a process's cgroup: its CPU quota's throttling and its pressure; version 1 and 2.

A quota may be set at any level above the process (job, step, task), and each level counts only its own: all are read.
"""

import math
from pathlib import Path, PurePosixPath

from greyhound.control.evidence_files import pressure, read_text, table, total

MOST_LEVELS = 16


class Cgroups:
    """Reads each group once a round, however many ranks are in it."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._unified: Path | None = None
        self._cpu: Path | None = None
        self._mounted = False
        self._known: dict[Path, dict[str, float]] = {}

    def begin_round(self) -> None:
        """Forget what was read."""
        self._known.clear()
        if not self._mounted:
            self._mounted = True
            self._find_mounts(read_text(self._root / "proc/self/mounts"))

    def _find_mounts(self, text: str) -> None:
        for line in text.splitlines():
            fields = line.split()
            if len(fields) < 4:
                continue
            if fields[2] == "cgroup2":
                self._unified = self._unified or self._root / fields[1].lstrip("/")
            elif fields[2] == "cgroup" and "cpu" in fields[3].split(","):
                self._cpu = self._cpu or self._root / fields[1].lstrip("/")

    def figures(self, membership: str) -> dict[str, float]:
        """Of a process with this /proc/PID/cgroup; what isn't counted is left out."""
        unified, cpu = _paths(membership)
        quotas = [*self._levels(self._unified, unified), *self._levels(self._cpu, cpu)]
        known = [found for found in map(self._quota, quotas) if found]
        figures = {
            name: sum(found[name] for found in known)
            for name in ("throttled_s", "periods", "throttled_periods")
            if known
        }
        if self._unified is not None and unified is not None:
            figures |= self._pressure(self._unified / unified.lstrip("/"))
        return figures

    @staticmethod
    def _levels(mount: Path | None, path: str | None) -> list[Path]:
        """The group and those above it, the mount itself included."""
        if mount is None or path is None or ".." in PurePosixPath(path).parts:
            return []  # outside of our cgroup namespace
        parts = [part for part in path.split("/") if part][: MOST_LEVELS - 1]
        return [mount.joinpath(*parts[:upto]) for upto in range(len(parts), -1, -1)]

    def _quota(self, group: Path) -> dict[str, float]:
        """Empty where no quota is counted. Version 1 has nanoseconds, version 2 microseconds."""
        if group not in self._known:
            found = table(read_text(group / "cpu.stat"))
            throttled_s = total(
                lambda name: found.get(name, math.nan) / (1e9 if name == "throttled_time" else 1e6),
                "throttled_usec",
                "throttled_time",
            )
            counted = not math.isnan(throttled_s)
            self._known[group] = (
                {
                    "throttled_s": throttled_s,
                    "periods": found.get("nr_periods", 0.0),
                    "throttled_periods": found.get("nr_throttled", 0.0),
                }
                if counted
                else {}
            )
        return self._known[group]

    def _pressure(self, group: Path) -> dict[str, float]:
        found = {}
        for what in ("cpu", "io", "memory"):
            some = pressure(read_text(group / f"{what}.pressure")).get("some", math.nan)
            if not math.isnan(some):
                found[f"psi_{what}_s"] = some
        return found


def _paths(membership: str) -> tuple[str | None, str | None]:
    """The paths in version 2's hierarchy and in version 1's of the CPU controller, from /proc/PID/cgroup."""
    unified = cpu = None
    for line in membership.splitlines():
        hierarchy, controllers, path = (*line.split(":", 2), "", "")[:3]
        if hierarchy == "0" and controllers == "":
            unified = path
        elif "cpu" in controllers.split(","):
            cpu = path
    return unified, cpu
