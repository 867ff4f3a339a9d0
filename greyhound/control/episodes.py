"""Merges what single ranks report into episodes of the job. Pure: no clock, no I/O.

In a synchronous job a fail-slow shows on every rank, a rank's own hiccup on few. So an episode opens when at least
half of the tracked ranks are in slow phases that overlap in time, and closes when at least half of those recovered.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from greyhound.control.events import utc
from greyhound.control.messages import Report

KEPT = 200  # episodes of one job, each with a phase a rank: a job of weeks must not fill the master's memory


@dataclass(frozen=True)
class Phase:
    """A slow phase of one rank: iterations are the rank's own, times wall clock ns; `end` is None while it lasts."""

    onset: int
    onset_ns: int
    reported: int
    healthy_s: float
    slow_s: float
    slowdown: float
    end: int | None = None
    end_ns: int | None = None
    lost_s: float = 0.0

    def covers(self, t_ns: int) -> bool:
        """Whether the phase is on at `t_ns`."""
        return self.onset_ns <= t_ns and (self.end_ns is None or t_ns < self.end_ns)


@dataclass
class Episode:
    """A fail-slow of the job; iterations, seconds and the slowdown are medians over its ranks."""

    id: str
    reported: int
    phases: dict[str, Phase] = field(default_factory=dict)
    open: bool = True
    end: int | None = None
    end_ns: int | None = None
    cause: str = ""
    closed_lost_s: float | None = None

    @property
    def onset(self) -> int:
        """First slow iteration."""
        return round(median(phase.onset for phase in self.phases.values()))

    @property
    def onset_ns(self) -> int:
        """Wall clock of the onset."""
        return round(median(phase.onset_ns for phase in self.phases.values()))

    @property
    def healthy_s(self) -> float:
        """Seconds an iteration before."""
        return median(phase.healthy_s for phase in self.phases.values())

    @property
    def slow_s(self) -> float:
        """Seconds an iteration during."""
        return median(phase.slow_s for phase in self.phases.values())

    @property
    def slowdown(self) -> float:
        """slow_s / healthy_s, median over the ranks."""
        return median(phase.slowdown for phase in self.phases.values())

    def lost_s(self, iteration: int) -> float:
        """Seconds lost so far, with the job at `iteration`; what the ranks measured once it is closed."""
        if self.closed_lost_s is not None:
            return self.closed_lost_s
        return max(0.0, (self.slow_s - self.healthy_s) * max(0, iteration - self.onset))

    def close(self, iteration: int, t_ns: int, cause: str) -> None:
        """End the episode at `iteration`; the loss is the median of what its ranks measured, where they did."""
        measured = [phase.lost_s for phase in self.phases.values() if phase.end is not None]
        self.closed_lost_s = median(measured) if measured else self.lost_s(iteration)
        self.end, self.end_ns, self.cause, self.open = iteration, t_ns, cause, False


def _needed(count: int) -> int:
    return max(1, (count + 1) // 2)


def _busiest(phases: Iterable[Phase]) -> int:
    """A time (ns) at which most of the phases are on."""
    edges = []
    for phase in phases:
        edges.append((phase.onset_ns, 1))
        if phase.end_ns is not None:
            edges.append((phase.end_ns, -1))
    moment, most, on = 0, 0, 0
    for t_ns, step in sorted(edges):
        on += step
        if on > most:
            moment, most = t_ns, on
    return moment


class EpisodeMerger:
    """Takes reports and the set of tracked ranks; `step` gives the episodes that opened or closed since."""

    def __init__(self) -> None:
        self.episodes: list[Episode] = []
        self.forgotten = 0
        """How many of the oldest are no longer kept."""
        self.forgotten_lost_s = 0.0
        self._tracked: set[str] = set()
        self._candidates: dict[str, Phase] = {}

    @property
    def current(self) -> Episode | None:
        """The open episode, if there is one; a job has one at a time."""
        return self.episodes[-1] if self.episodes and self.episodes[-1].open else None

    def lost_s(self, iteration: int) -> float:
        """Seconds lost in all episodes so far, with the job at `iteration`."""
        return self.forgotten_lost_s + sum(episode.lost_s(iteration) for episode in self.episodes)

    def set_tracked(self, keys: set[str]) -> None:
        """Which ranks are alive and tracked now; phases of others don't count.

        They are kept all the same: a rank's report may come before the news that it is tracked.
        """
        self._tracked = set(keys)

    def report(self, key: str, report: Report) -> None:
        """Take a rank's report of a slow phase; a `closed` without its `opened` is ignored."""
        if report.what == "opened":
            phase = Phase(report.onset, report.onset_ns, report.at, report.healthy_s, report.slow_s, report.slowdown)
            self._store(key, phase)
            return
        held = self._held(key)
        if held is not None and held.end is None:
            end_ns = max(report.at_ns, held.onset_ns + 1)
            held = replace(held, slow_s=report.slow_s, slowdown=report.slowdown, lost_s=report.lost_s)
            self._store(key, replace(held, end=report.at, end_ns=end_ns))

    def _held(self, key: str) -> Phase | None:
        current = self.current
        if current is not None and key in current.phases:
            return current.phases[key]
        return self._candidates.get(key)

    def _store(self, key: str, phase: Phase) -> None:
        current = self.current
        if current is not None and (key in current.phases or self._joins(current, phase)):
            current.phases[key] = phase
            self._candidates.pop(key, None)
        else:
            self._candidates[key] = phase

    @staticmethod
    def _joins(episode: Episode, phase: Phase) -> bool:
        return phase.end_ns is None or phase.end_ns > episode.onset_ns

    def step(self, iteration: int, t_ns: int) -> list[Episode]:
        """Episodes that changed, with the job at `iteration` and `t_ns`: look at `open`."""
        changed = []
        if self.current is None:
            opened = self._try_open()
            changed += [opened] if opened else []
        if self.current is not None and self._try_close(self.current, iteration, t_ns):
            closed = self.episodes[-1]
            changed += [] if closed in changed else [closed]
        return changed

    def _try_open(self) -> Episode | None:
        ours = {key: phase for key, phase in self._candidates.items() if key in self._tracked}
        needed = _needed(len(self._tracked))
        if len(ours) < needed:
            return None
        moment = _busiest(ours.values())
        together = {key: phase for key, phase in ours.items() if phase.covers(moment)}
        if len(together) < needed:
            return None
        reported = round(median(phase.reported for phase in together.values()))
        episode = Episode(f"e{self.forgotten + len(self.episodes) + 1}", reported, together)
        self.episodes.append(episode)
        if len(self.episodes) > KEPT:
            self.forgotten += 1
            self.forgotten_lost_s += self.episodes.pop(0).closed_lost_s or 0.0
        for key, phase in list(self._candidates.items()):
            if key in together or self._joins(episode, phase):
                episode.phases[key] = self._candidates.pop(key)
        return episode

    def _try_close(self, episode: Episode, iteration: int, t_ns: int) -> bool:
        there = {key: phase for key, phase in episode.phases.items() if key in self._tracked}
        if not there:
            episode.close(iteration, t_ns, "its ranks ended")
            return True
        ended = [phase for phase in there.values() if phase.end is not None and phase.end_ns is not None]
        if len(ended) < _needed(len(there)):
            return False
        episode.close(
            round(median(phase.end for phase in ended if phase.end is not None)),
            round(median(phase.end_ns for phase in ended if phase.end_ns is not None)),
            "recovered",
        )
        return True


def episode_data(episode: Episode, iteration: int) -> dict[str, Any]:
    """What events and status say of an episode, the job being at `iteration`."""
    return {
        "onset": episode.onset,
        "onset_time": utc(episode.onset_ns / 1e9),
        "reported": episode.reported,
        "ranks": len(episode.phases),
        "healthy_s": round(episode.healthy_s, 6),
        "slow_s": round(episode.slow_s, 6),
        "slowdown": round(episode.slowdown, 4),
        "end": episode.end,
        "duration_s": None if episode.end_ns is None else round((episode.end_ns - episode.onset_ns) / 1e9, 3),
        "lost_s": round(episode.lost_s(iteration), 3),
        "cause": episode.cause or None,
    }
