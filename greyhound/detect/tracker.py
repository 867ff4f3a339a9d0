"""Finds fail-slows in a rank's iteration times: candidates by change point, verified by medians, with hysteresis."""

import math
from collections import deque
from dataclasses import dataclass, replace

from greyhound.detect.baseline import Baseline
from greyhound.detect.changepoint import LatestChange
from greyhound.detect.episode import Episode, Sample
from greyhound.detect.findings import Closed, Finding, Minor, Opened, Regime
from greyhound.detect.minor import MinorWatch
from greyhound.detect.onset import HISTORY, onset
from greyhound.detect.pauses import Pauses
from greyhound.detect.verify import WINDOWS, Verifier

__all__ = ["Closed", "Finding", "Minor", "Opened", "Regime", "Tracker", "TrackerConfig"]

_HISTORY = 64  # iterations in which an end is placed: the longest window and what was before it


@dataclass(frozen=True)
class TrackerConfig:
    """What counts as a fail-slow: ``threshold`` a share of the healthy time, ``warmup`` and ``recovery`` iterations.

    A minor level is reported after 300 iterations or ``minor_holds_s``, whichever comes first. ``holds_pauses``: if
    evaluations may be among the iterations, as in a log; where the calls leave them out, less patience is needed.
    """

    threshold: float = 0.10
    warmup: int = 10
    recovery: int = 5
    change_probability: float = 0.3
    standard_errors: float = 1.5
    minor_holds_s: float = 1800.0
    holds_pauses: bool = True


class Tracker:
    """One rank's iteration times, in order; each update costs the same however long the history is."""

    def __init__(self, config: TrackerConfig | None = None) -> None:
        """See TrackerConfig for the units."""
        self._config = config or TrackerConfig()
        self._opens_at = math.log1p(self._config.threshold)
        self._restart()

    def _restart(self) -> None:
        self._baseline = Baseline(self._config.warmup)
        self._pauses = Pauses(self._opens_at / 2)
        self._verifier = self._new_verifier()
        self._minor = MinorWatch(self._config.threshold, self._config.minor_holds_s)
        self._change = LatestChange()
        self._recent: deque[Sample] = deque(maxlen=_HISTORY)
        self._earlier: deque[Sample] = deque(maxlen=HISTORY - _HISTORY)
        self._episode: Episode | None = None
        self._last_iteration: int | None = None

    def _new_verifier(self) -> Verifier:
        errors, holds_pauses = self._config.standard_errors, self._config.holds_pauses
        return Verifier(self._baseline, self._pauses, self._opens_at, errors, holds_pauses)

    @property
    def healthy_s(self) -> float | None:
        """Seconds of a healthy iteration; None during warm-up."""
        return self._baseline.healthy_s

    @property
    def slow(self) -> bool:
        """Whether an episode is open."""
        return self._episode is not None

    def set_threshold(self, threshold: float) -> None:
        """From now on this share counts; what was learnt stays, and an open episode goes on."""
        self._config = replace(self._config, threshold=threshold)
        self._opens_at = math.log1p(threshold)
        self._verifier = self._new_verifier()
        self._minor.set_threshold(threshold)

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
        log_s = math.log(seconds)
        sample = Sample(iteration, seconds, log_s - self._baseline.level)
        self._keep(sample)
        # Only after the warm-up: its first value is the prior's mean, and first iterations are no guide to the level.
        self._change.add(sample.excess)
        if self._episode is not None:
            return self._watch_recovery(self._episode, sample)
        if sample.excess > self._opens_at and (opened := self._find_onset(sample, healthy_s)):
            return [opened]
        return self._learn(sample, log_s, healthy_s)

    def pattern_changed(self, iteration: int) -> list[Finding]:
        """The calls show other work from ``iteration`` on: close what is open and learn the new healthy time.

        If the numbers begin again, the period was found to be longer, or the training restarted: no regime then.
        """
        findings: list[Finding] = []
        if self._episode is not None:
            findings.append(self._episode.close(iteration, iteration, []))
        goes_on = self._last_iteration is not None and iteration > self._last_iteration
        if goes_on and self.healthy_s is not None:
            findings.append(Regime(onset=iteration, reported=iteration, healthy_s=self.healthy_s))
        self._restart()
        return findings

    def _keep(self, sample: Sample) -> None:
        if len(self._recent) == _HISTORY and self._episode is None:
            self._earlier.append(self._recent[0])
        self._recent.append(sample)

    def _learn(self, sample: Sample, log_s: float, healthy_s: float) -> list[Finding]:
        healthy = self._baseline.learn(log_s)
        if healthy is not None:
            self._pauses.take(healthy - self._baseline.level)
        error = self._baseline.median_error(1)
        minor = self._minor.add(sample.iteration, sample.seconds, sample.excess, healthy_s, error)
        return [minor] if minor else []

    def _newly_changed(self) -> bool:
        return self._change.probability() >= self._config.change_probability

    def _find_onset(self, sample: Sample, healthy_s: float) -> Opened | None:
        recent = list(self._recent)
        excess = [row.excess for row in recent]
        found = self._verifier.slow_level(excess, self._newly_changed)
        if found is None:
            return None
        length, middle = found
        history = [*self._earlier, *recent]
        kept = [row.excess for row in history]
        spread, error = self._baseline.spread, self._baseline.median_error(1)
        slow = history[onset(kept, length - WINDOWS[length], middle, self._opens_at, spread, error) :]
        # The median of the window, not of all since the onset: what rose slowly is as slow as it is now.
        slow_s = healthy_s * math.exp(middle)
        opened = Opened(slow[0].iteration, sample.iteration, healthy_s, slow_s, slow_s / healthy_s)
        self._episode = Episode(opened, slow)
        self._recent, self._earlier = deque(slow, maxlen=_HISTORY), deque(maxlen=HISTORY - _HISTORY)
        # Held back as possibly slow, and now known to be.
        self._baseline.forget_pending()
        self._minor.interrupt()
        return opened

    def _watch_recovery(self, episode: Episode, sample: Sample) -> list[Finding]:
        episode.add(sample)
        if sample.excess > self._opens_at and self._recent[-2].excess > self._opens_at:
            return []
        recent = list(self._recent)
        excess = [row.excess for row in recent]
        end = episode.end(excess, self._baseline, self._opens_at, self._config.recovery)
        if end is None:
            return []
        after = recent[end:]
        self._recent = deque(after, maxlen=_HISTORY)
        self._episode = None
        self._pauses.add(episode.count - len(after), math.log(episode.opened.slowdown))
        self._baseline.recovered([math.log(row.seconds) for row in after])
        return [episode.close(after[0].iteration, sample.iteration, [row.seconds for row in after])]
