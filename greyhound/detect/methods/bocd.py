"""BOCD and BOCD+V as published: Wu et al., ATC 2025, section 4.2, on Adams and MacKay 2007 (arXiv 0710.3742)."""

import math
from collections import deque
from statistics import fmean
from typing import Protocol

from greyhound.detect.changepoint import Bocd
from greyhound.detect.findings import Closed, Finding, Opened

_PROBABILITY = 0.9
_RECENT = 6  # iterations back to which a change counts as one of now
_KEPT = 100  # iterations before a change from which the mean before it is taken


class ChangeDetector(Protocol):
    """What tells change points."""

    def update(self, x: float) -> float:
        """Take the next value; the probability of a change among the last few."""


class BocdMethod:
    """A change point is where its probability exceeds 0.9; up is a fail-slow, down ends it, and so does a new one.

    With ``verify`` (BOCD+V) only if the means before and after differ by at least that share. The place of the
    change among the last iterations is the most likely split in two means. With a constant hazard the probability of
    run length 0 is the hazard itself at every step, so the mass on the last few run lengths stands for it.
    """

    def __init__(self, warmup: int, verify: float | None, change: ChangeDetector | None = None) -> None:
        """The first ``warmup`` iterations are left out, as for the other methods."""
        self._warmup = warmup
        self._least = verify or 0.0
        self._seen = 0
        self._changed = False
        self._change = change or published_bocd()
        self._rows: deque[tuple[int, float]] = deque(maxlen=_KEPT + _RECENT)
        self._opened: Opened | None = None
        self._healthy_s: float | None = None
        self._slow_s: list[float] = []

    @property
    def healthy_s(self) -> float | None:
        """The mean before the open fail-slow, else of the latest iterations."""
        if self._opened is not None:
            return self._opened.healthy_s
        return fmean(row[1] for row in self._rows) if self._rows else None

    def update(self, iteration: int, seconds: float) -> list[Finding]:
        """Take one iteration's time; what became certain with it."""
        self._seen += 1
        if self._seen <= self._warmup:
            return []
        changed = self._change.update(math.log(seconds)) > _PROBABILITY
        self._rows.append((iteration, seconds))
        if self._opened is not None:
            self._slow_s.append(seconds)
        is_new, self._changed = changed and not self._changed, changed
        # All mass lies on short runs until there are longer ones.
        if not changed or self._seen - self._warmup <= _RECENT + 1:
            return []
        # A change stays among the last iterations for a while; without verification it is one report all the same.
        if self._least == 0.0 and not is_new:
            return []
        return self._look(iteration)

    def pattern_changed(self, iteration: int) -> list[Finding]:
        """The published methods know of no patterns."""
        return []

    def _look(self, iteration: int) -> list[Finding]:
        rows = list(self._rows)
        times_s = [row[1] for row in rows]
        at = likely_split(times_s, _RECENT + 1)
        if at is None:
            return []
        before_s, after_s = fmean(times_s[:at]), fmean(times_s[at:])
        findings: list[Finding] = []
        slower = after_s > before_s and after_s >= before_s * (1 + self._least)
        faster = after_s < before_s and after_s <= before_s * (1 - self._least)
        if self._opened is not None and (slower or faster):
            findings.append(self._close(self._opened, rows[at][0], iteration, len(rows) - at))
        if slower:
            self._opened = Opened(rows[at][0], iteration, before_s, after_s, after_s / before_s)
            self._slow_s = times_s[at:]
            findings.append(self._opened)
        if slower or faster:
            self._keep(rows[at:])
        return findings

    def _keep(self, rows: list[tuple[int, float]]) -> None:
        """Of what lies before the change nothing counts any more."""
        self._rows.clear()
        self._rows.extend(rows)

    def _close(self, opened: Opened, end: int, iteration: int, after: int) -> Closed:
        slow_s = self._slow_s[:-after] or self._slow_s
        self._opened = None
        lost_s = max(sum(slow_s) - len(slow_s) * opened.healthy_s, 0.0)
        return Closed(opened.onset, end, iteration, fmean(slow_s) / opened.healthy_s, lost_s)


def published_bocd() -> Bocd:
    """The change-point detector of both methods: hazard 1/250, normal-inverse-gamma prior."""
    return Bocd(hazard=1 / 250, recent=_RECENT)


def likely_split(values: list[float], most_after: int) -> int | None:
    """Where a series splits best in two means (least squares), at most ``most_after`` values before its end."""
    count, total = len(values), sum(values)
    best, best_gain, after = None, 0.0, 0.0
    for behind in range(1, min(most_after, count - 1) + 1):
        after += values[-behind]
        ahead = count - behind
        gain = ahead * behind / count * ((total - after) / ahead - after / behind) ** 2
        if gain > best_gain:
            best, best_gain = ahead, gain
    return best
