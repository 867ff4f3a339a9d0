"""Runs a method over a series strictly in order, as if live, and keeps what it said."""

from array import array
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from greyhound.detect.findings import Closed, Finding, Minor, Opened, Regime
from greyhound.detect.methods import Method

_KEPT = 1024  # latest iterations, in case an episode turns out to have begun with them


@dataclass(frozen=True)
class Episode:
    """A fail-slow; ``onset``, ``reported`` and ``end`` are values of the iteration column.

    ``reported`` is the iteration with which it became certain. ``end`` is the first iteration that was healthy again,
    None while that isn't known (or never came before the data ended, or the training began anew). ``slowdown`` is of
    the whole episode as far as it goes: the method's own figure when it ended, else the median since ``onset`` over
    the healthy time; so it may move while an episode is open, ``onset`` and ``reported`` never do.
    """

    onset: int
    reported: int
    end: int | None
    slowdown: float


@dataclass(frozen=True)
class Analysis:
    """What a method said of ``n`` iterations; ``healthy_s`` is None where they were too few to know it."""

    n: int
    healthy_s: float | None
    episodes: list[Episode]
    minor: list[Minor]
    regimes: list[Regime]

    def as_json(self) -> dict[str, Any]:
        """For `greyhound detect --json` (docs/interfaces.md 8)."""
        return {
            "n": self.n,
            "healthy_s": self.healthy_s,
            "episodes": [vars(row) for row in self.episodes],
            "minor": [vars(row) for row in self.minor],
            "regimes": [vars(row) for row in self.regimes],
        }


@dataclass
class _Open:
    """The episode that is open, with its times so far."""

    opened: Opened
    seconds: "array[float]" = field(default_factory=lambda: array("d"))


class OfflineRun:
    """One series on its way through a method."""

    def __init__(self, method: Method) -> None:
        """``method`` must be fresh."""
        self._method = method
        self.n = 0
        self._last: int | None = None
        self._open: _Open | None = None
        self._episodes: list[Episode] = []
        self._minor: list[Minor] = []
        self._regimes: list[Regime] = []
        self._recent: list[tuple[int, float]] = []

    @property
    def healthy_s(self) -> float | None:
        """Seconds of a healthy iteration as the method knows it now."""
        return self._method.healthy_s

    def feed(self, iteration: int, seconds: float) -> list[Finding]:
        """The next iteration's time (positive, finite); what the method says to it."""
        if self._last is not None and iteration <= self._last:
            self._leave_open()
        self._last = iteration
        self.n += 1
        self._remember(iteration, seconds)
        findings = self._method.update(iteration, seconds)
        for finding in findings:
            self._take(finding)
        return findings

    def pattern_changed(self, iteration: int) -> list[Finding]:
        """The calls show other work from ``iteration`` on."""
        findings = self._method.pattern_changed(iteration)
        for finding in findings:
            self._take(finding)
        return findings

    def result(self) -> Analysis:
        """What was said so far."""
        open_episode = [self._open_as_episode(self._open)] if self._open else []
        episodes = self._episodes + open_episode
        return Analysis(self.n, self.healthy_s, episodes, list(self._minor), list(self._regimes))

    def _remember(self, iteration: int, seconds: float) -> None:
        if self._open is not None:
            self._open.seconds.append(seconds)
            return
        self._recent.append((iteration, seconds))
        if len(self._recent) > 2 * _KEPT:
            del self._recent[:_KEPT]

    def _take(self, finding: Finding) -> None:
        match finding:
            case Opened():
                since = [seconds for iteration, seconds in self._recent if iteration >= finding.onset]
                self._leave_open()
                self._open = _Open(finding, array("d", since))
            case Closed():
                self._close(finding)
            case Minor():
                self._minor.append(finding)
            case Regime():
                self._regimes.append(finding)

    def _close(self, closed: Closed) -> None:
        if self._open is None:
            return
        opened = self._open.opened
        self._episodes.append(Episode(opened.onset, opened.reported, closed.end, closed.slowdown))
        self._open = None
        self._recent.clear()

    def _leave_open(self) -> None:
        """The open episode's end will never be known."""
        if self._open is not None:
            self._episodes.append(self._open_as_episode(self._open))
        self._open = None
        self._recent.clear()

    def _open_as_episode(self, known: _Open) -> Episode:
        opened = known.opened
        slowdown = median(known.seconds) / opened.healthy_s if known.seconds else opened.slowdown
        return Episode(opened.onset, opened.reported, None, slowdown)
