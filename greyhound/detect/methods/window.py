"""The sliding window of the paper's Tables 3 and 4: 10 % from the running median (Wu et al., ATC 2025, section 7.2)."""

from bisect import insort
from collections import deque
from statistics import fmean

from greyhound.detect.findings import Closed, Finding, Opened

_WINDOW = 10
"""Iterations in the window; the paper gives no length."""


class WindowMethod:
    """Slow while the mean of the last ten iterations is more than ``threshold`` above the median of all so far.

    As published: nothing keeps spikes and pauses out, and a slow job becomes normal when most of it was slow.
    """

    def __init__(self, warmup: int, threshold: float) -> None:
        """The first ``warmup`` iterations are left out, as for the other methods."""
        self._warmup = warmup
        self._factor = 1 + threshold
        self._seen = 0
        self._sorted: list[float] = []
        self._window: deque[tuple[int, float]] = deque(maxlen=_WINDOW)
        self._opened: Opened | None = None
        self._count, self._sum_s = 0, 0.0

    @property
    def healthy_s(self) -> float | None:
        """The running median."""
        return self._sorted[len(self._sorted) // 2] if self._sorted else None

    def update(self, iteration: int, seconds: float) -> list[Finding]:
        """Take one iteration's time; what became certain with it."""
        self._seen += 1
        if self._seen <= self._warmup:
            return []
        insort(self._sorted, seconds)
        self._window.append((iteration, seconds))
        if len(self._window) < _WINDOW:
            return []
        middle_s = self._sorted[len(self._sorted) // 2]
        mean_s = fmean(row[1] for row in self._window)
        slow = mean_s > self._factor * middle_s
        if self._opened is None:
            return self._open(iteration, mean_s, middle_s) if slow else []
        if slow:
            self._count, self._sum_s = self._count + 1, self._sum_s + seconds
            return []
        return [self._close(self._opened, iteration)]

    def pattern_changed(self, iteration: int) -> list[Finding]:
        """The published method knows of no patterns."""
        return []

    def _open(self, iteration: int, mean_s: float, middle_s: float) -> list[Finding]:
        slow = [row for row in self._window if row[1] > self._factor * middle_s]
        onset = slow[0][0] if slow else iteration
        self._opened = Opened(onset, iteration, middle_s, mean_s, mean_s / middle_s)
        self._count, self._sum_s = len(slow), sum(row[1] for row in slow)
        return [self._opened]

    def _close(self, opened: Opened, iteration: int) -> Closed:
        slow_s = self._sum_s / self._count if self._count else opened.slow_s
        self._opened = None
        lost_s = max(self._sum_s - self._count * opened.healthy_s, 0.0)
        return Closed(opened.onset, iteration, iteration, slow_s / opened.healthy_s, lost_s)
