"""Minor levels: slower than healthy, below the threshold, for long. One finding a job from those of its ranks. Pure."""

from statistics import median
from typing import Any

from greyhound.control.messages import Report

KEPT = 50


class MinorMerger:
    """As for episodes, half of the tracked ranks must say so; a rank that says it again begins another round."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self.found: list[dict[str, Any]] = []
        self._round: dict[str, Report] = {}
        self._told = False

    def add(self, key: str, report: Report, tracked: int) -> dict[str, Any] | None:
        """Take a rank's finding; the job's, once `tracked` ranks are half reached. Levels are seconds an iteration."""
        if key in self._round:
            self._round, self._told = {}, False
        self._round[key] = report
        if self._told or 2 * len(self._round) < max(tracked, 1):
            return None
        self._told = True
        reports = self._round.values()
        finding = {
            "onset": round(median(r.onset for r in reports)),
            "reported": round(median(r.at for r in reports)),
            "ranks": len(self._round),
            "healthy_s": round(median(r.healthy_s for r in reports), 6),
            "level_s": round(median(r.slow_s for r in reports), 6),
            "level": round(median(r.slowdown for r in reports), 4),
        }
        self.found = [*self.found, finding][-KEPT:]
        return finding
