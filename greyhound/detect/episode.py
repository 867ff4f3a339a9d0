"""A fail-slow while it lasts: what it costs, how slow it is, and whether it has ended."""

import math
from dataclasses import dataclass
from statistics import median

from greyhound.detect.baseline import Baseline
from greyhound.detect.findings import Closed, Opened

_SAMPLES = 1024  # times kept of an episode; longer ones are thinned out
# Thinned by the fractions of multiples of the golden ratio: every n-th iteration would meet what comes every n-th.
_GOLDEN = (math.sqrt(5) - 1) / 2
_WINDOWS = {5: 1, 8: 1, 12: 2, 20: 4, 40: 8}  # iterations in which an end is looked for -> how many may be slow
_DIFFERENT_ERRORS = 5.0  # standard errors of a window's median by which it must lie below the slow level
_REMAINDER = 0.2  # share of an episode's height that may remain when it ends


@dataclass(frozen=True)
class Sample:
    """One iteration; ``excess`` is the log of its seconds over the healthy ones."""

    iteration: int
    seconds: float
    excess: float


class Episode:
    """Takes each iteration from the onset on."""

    def __init__(self, opened: Opened, samples: list[Sample]) -> None:
        """``samples``: the slow iterations by which it was found."""
        self.opened = opened
        self._samples: list[tuple[float, float]] = []  # (fraction, seconds)
        self._share = 1.0
        self.count = 0
        self._lost_s = 0.0
        for sample in samples:
            self.add(sample)

    def add(self, sample: Sample) -> None:
        """The next iteration."""
        self._lost_s += sample.seconds - self.opened.healthy_s
        fraction = self.count * _GOLDEN % 1.0
        if fraction < self._share:
            self._samples.append((fraction, sample.seconds))
        self.count += 1
        if len(self._samples) > _SAMPLES:
            self._share /= 2
            self._samples = [row for row in self._samples if row[0] < self._share]

    def end(self, recent: list[float], baseline: Baseline, opens_at: float, least: int) -> int | None:
        """Place in ``recent`` (log over healthy) from which on it is healthy again, if it is: ``least`` or more."""
        height = math.log(self.opened.slowdown)
        # Half the threshold: a level between the two is still the same fail-slow.
        closes_at = max(opens_at / 2, _REMAINDER * height)
        for length, slow_allowed in _WINDOWS.items():
            if len(recent) < length:
                return None
            window = sorted(recent[-length:])
            middle, error = median(window), baseline.median_error(length)
            fast = sum(excess < closes_at + error for excess in window)
            apart = height - middle > _DIFFERENT_ERRORS * error or length == max(_WINDOWS)
            if middle < closes_at and apart and length >= least and fast >= length - slow_allowed:
                return _fast_since(recent, (height + middle) / 2)
        return None

    def close(self, end: int, reported: int, after_s: list[float]) -> Closed:
        """The finding; ``after_s`` are the iterations from ``end`` on, which were counted before that was known."""
        healthy_s = self.opened.healthy_s
        lost_s = self._lost_s - sum(seconds - healthy_s for seconds in after_s)
        samples_s = [seconds for _, seconds in self._samples]
        slow_s = samples_s[: len(samples_s) - len(after_s)] if self._share == 1.0 else samples_s
        slowdown = median(slow_s or samples_s) / healthy_s
        return Closed(self.opened.onset, end, reported, slowdown, max(lost_s, 0.0))


def _fast_since(recent: list[float], limit: float) -> int:
    """Where the end of ``recent`` begins in which values below ``limit`` most outnumber those above."""
    best, where, balance = 0, len(recent) - 1, 0
    for at in range(len(recent) - 1, -1, -1):
        balance += 1 if recent[at] < limit else -1
        if balance > best:
            best, where = balance, at
    return where
