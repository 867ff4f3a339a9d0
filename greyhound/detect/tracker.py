"""Finds fail-slows in a rank's iteration times: candidates by change point, verified by medians, with hysteresis.

The paper (section 4.2, BOCD+V) verifies by means, which a single spike moves; medians and the demand that nearly all
iterations of the window are slow keep isolated, clustered and periodic spikes out.
"""

import math
from collections import deque
from dataclasses import dataclass
from statistics import median

from greyhound.detect.baseline import Baseline
from greyhound.detect.changepoint import Bocd
from greyhound.detect.findings import Closed, Finding, Minor, Opened, Regime

__all__ = ["Closed", "Finding", "Minor", "Opened", "Regime", "Tracker", "TrackerConfig"]

# Windows in which a slow-down is looked for: iterations -> how many of them may be fast.
_WINDOWS = {4: 0, 5: 0, 6: 0, 8: 1, 12: 2, 20: 4, 40: 8}
_SHORT = 8  # windows up to this one need a change point, or times far outside the healthy spread
_EVIDENT_DEVIATIONS = 3.0
# The shortest window is for shifts so large that no jitter of this rank explains them: deviations, times threshold.
_GROSS = 4
_GROSS_DEVIATIONS, _GROSS_THRESHOLDS = 6.0, 2.0
_LEEWAY_DEVIATIONS = 0.25  # how far below half the shift a slow iteration may lie
_REMAINDER = 0.2  # share of an episode's height that may remain when it ends
_HISTORY = max(_WINDOWS)
_EPISODE_SAMPLES = 1024


@dataclass(frozen=True)
class TrackerConfig:
    """What counts as a fail-slow: ``threshold`` a share of the healthy time, ``warmup`` and ``recovery`` iterations."""

    threshold: float = 0.10
    warmup: int = 10
    recovery: int = 5
    change_probability: float = 0.3
    standard_errors: float = 1.25


@dataclass(frozen=True)
class _Sample:
    iteration: int
    seconds: float
    excess: float  # log of seconds over healthy


@dataclass
class _Episode:
    opened: Opened
    samples_s: list[float]
    stride: int = 1
    count: int = 0
    lost_s: float = 0.0

    def add(self, sample: _Sample, healthy_s: float) -> None:
        self.lost_s += sample.seconds - healthy_s
        if self.count % self.stride == 0:
            self.samples_s.append(sample.seconds)
        self.count += 1
        if len(self.samples_s) > _EPISODE_SAMPLES:
            self.samples_s, self.stride = self.samples_s[::2], self.stride * 2


class Tracker:
    """One rank's iteration times, in order; each update costs the same however long the history is."""

    def __init__(self, config: TrackerConfig | None = None) -> None:
        """See TrackerConfig for the units."""
        self._config = config or TrackerConfig()
        self._opens_at = math.log1p(self._config.threshold)
        self._closes_at = math.log1p(self._config.threshold / 2)
        self._restart()

    def _restart(self) -> None:
        self._baseline = Baseline(self._config.warmup, self._opens_at)
        self._change = Bocd()
        self._recent: deque[_Sample] = deque(maxlen=_HISTORY)
        self._episode: _Episode | None = None
        self._last_iteration: int | None = None

    @property
    def healthy_s(self) -> float | None:
        """Seconds of a healthy iteration; None during warm-up."""
        return self._baseline.healthy_s

    @property
    def slow(self) -> bool:
        """Whether an episode is open."""
        return self._episode is not None

    def update(self, iteration: int, seconds: float) -> list[Finding]:
        """Take one iteration's time; what became certain with it.

        Iterations may be left out. A number that isn't above the last one means that the count began again (the
        training restarted, or its period was found to be longer): everything is learnt anew.
        Raises ValueError for times that are not positive and finite.
        """
        if not (seconds > 0 and math.isfinite(seconds)):
            raise ValueError(f"iteration {iteration}: {seconds!r} is not a time in seconds")
        if self._last_iteration is not None and iteration <= self._last_iteration:
            self._restart()
        self._last_iteration = iteration
        healthy_s = self._baseline.healthy_s
        if healthy_s is None:
            self._baseline.warm_up(seconds)
            return []
        sample = _Sample(iteration, seconds, math.log(seconds / healthy_s))
        self._recent.append(sample)
        # Only after the warm-up: its first value is the prior's mean, and first iterations are no guide to the level.
        newly_changed = self._change.update(sample.excess) >= self._config.change_probability
        if self._episode is not None:
            return self._watch_recovery(sample, healthy_s)
        return self._watch_onset(sample, healthy_s, newly_changed)

    def pattern_changed(self, iteration: int) -> list[Finding]:
        """The calls show other work from ``iteration`` on: close what is open and learn the new healthy time.

        If the numbers begin again, the period was found to be longer, or the training restarted: no regime then.
        """
        findings: list[Finding] = []
        if self._episode is not None:
            findings.append(self._close(self._episode, iteration, iteration))
        goes_on = self._last_iteration is not None and iteration > self._last_iteration
        if goes_on and self.healthy_s is not None:
            findings.append(Regime(onset=iteration, reported=iteration, healthy_s=self.healthy_s))
        self._restart()
        return findings

    def _watch_onset(self, sample: _Sample, healthy_s: float, newly_changed: bool) -> list[Finding]:
        slow_samples = self._slow_window(newly_changed) if sample.excess > self._opens_at else None
        if slow_samples is None:
            self._baseline.learn(sample.seconds)
            return []
        # Held back as possibly slow, and now known to be.
        self._baseline.forget_pending()
        slow_s = median(slow.seconds for slow in slow_samples)
        opened = Opened(slow_samples[0].iteration, sample.iteration, healthy_s, slow_s, slow_s / healthy_s)
        self._episode = _Episode(opened, [])
        for slow in slow_samples:
            self._episode.add(slow, healthy_s)
        return [opened]

    def _slow_window(self, newly_changed: bool) -> list[_Sample] | None:
        """The iterations since the onset if the latest ones are slow beyond doubt."""
        recent = list(self._recent)
        for length, fast_allowed in _WINDOWS.items():
            if len(recent) < length:
                return None
            window = sorted(sample.excess for sample in recent[-length:])
            if length > _SHORT:
                certain = self._is_slow(window, fast_allowed)
            else:
                certain = (
                    self._is_evident(window, newly_changed)
                    and self._is_slow(window, fast_allowed)
                    and self._is_level(window[fast_allowed:])
                )
            if certain:
                return self._since_onset(recent, length)
        return None

    def _is_evident(self, excess: list[float], newly_changed: bool) -> bool:
        """Whether a short window (sorted) may be trusted: a change point there, or all of it far outside the spread."""
        if len(excess) <= _GROSS:
            return excess[0] > max(_GROSS_DEVIATIONS * self._baseline.spread, _GROSS_THRESHOLDS * self._opens_at)
        return newly_changed or excess[0] > _EVIDENT_DEVIATIONS * self._baseline.spread

    def _is_slow(self, excess: list[float], fast_allowed: int) -> bool:
        """Whether a window (sorted) lies above the threshold, nearly all of it and beyond the error of its median."""
        error = self._config.standard_errors * self._baseline.median_error(len(excess))
        middle = median(excess)
        floor = middle / 2 - _LEEWAY_DEVIATIONS * self._baseline.spread
        return middle > self._opens_at + error and excess[fast_allowed] > floor

    def _is_level(self, excess: list[float]) -> bool:
        """Whether slow iterations (sorted) are consistent in height: a new level is, a cluster of spikes is not."""
        return excess[-2] - excess[0] <= max(4.5 * self._baseline.spread, median(excess) / 2)

    def _since_onset(self, recent: list[_Sample], length: int) -> list[_Sample]:
        """``recent`` from the first slow iteration of the run that the window ends; one fast one is no break."""
        level = median(sample.excess for sample in recent[-length:])
        start = len(recent) - length
        while recent[start].excess <= level / 2:
            start += 1
        while start > 0 and recent[start - 1].excess > level / 2:
            start -= 1
        return recent[start:]

    def _watch_recovery(self, sample: _Sample, healthy_s: float) -> list[Finding]:
        episode = self._episode
        assert episode is not None
        episode.add(sample, healthy_s)
        last = list(self._recent)[-self._config.recovery :]
        error = self._baseline.median_error(len(last))
        closes_at = max(self._closes_at, _REMAINDER * math.log(episode.opened.slowdown))
        fast = [row for row in last if row.excess < max(self._opens_at, closes_at) + error]
        recovered = len(last) == self._config.recovery and median(row.excess for row in last) < closes_at
        if not recovered or len(fast) < len(last) - 1:
            return []
        end = fast[0].iteration
        after = [row for row in last if row.iteration >= end]
        self._recent = deque(after, maxlen=_HISTORY)
        self._episode = None
        self._baseline.recovered([row.seconds for row in after])
        return [self._close(episode, end, sample.iteration, [row.seconds for row in after])]

    def _close(self, episode: _Episode, end: int, reported: int, fast_s: list[float] | None = None) -> Closed:
        """The finding; ``fast_s`` are the iterations after ``end``, which were counted before that was known."""
        healthy_s = episode.opened.healthy_s
        lost_s = episode.lost_s - sum(seconds - healthy_s for seconds in fast_s or [])
        slow_s = episode.samples_s[: -len(fast_s)] if fast_s and episode.stride == 1 else episode.samples_s
        slowdown = median(slow_s or episode.samples_s) / healthy_s
        return Closed(episode.opened.onset, end, reported, slowdown, max(lost_s, 0.0))
