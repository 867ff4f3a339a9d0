"""Sums fail-slows by job, node, GPU, link, cause or user. Pure."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from greyhound.report.build import HOUR_S, Attempt
from greyhound.report.records import EpisodeRecord

UNATTRIBUTED = "(not attributed)"


@dataclass
class Group:
    """One key's share: runs touched, fail-slows, how long, how bad, what it cost."""

    key: str
    jobs: set[str] = field(default_factory=set)
    fail_slows: int = 0
    slow_s: float = 0.0
    worst: float = 0.0
    lost_s: float = 0.0
    gpu_hours_lost: float = 0.0

    def add(self, attempt: Attempt, episode: EpisodeRecord) -> None:
        """Count one fail-slow of a run."""
        gpus = attempt.gpu_hours_lost * HOUR_S / attempt.lost_s if attempt.lost_s else 0.0
        self.jobs.add(attempt.run.raw_id)
        self.fail_slows += 1
        self.slow_s += episode.duration_s or 0.0
        self.worst = max(self.worst, episode.slowdown)
        self.lost_s += episode.lost_s
        self.gpu_hours_lost += episode.lost_s * gpus / HOUR_S

    def merge(self, other: "Group") -> None:
        """Count other jobs' share in."""
        self.jobs |= other.jobs
        self.fail_slows += other.fail_slows
        self.slow_s += other.slow_s
        self.worst = max(self.worst, other.worst)
        self.lost_s += other.lost_s
        self.gpu_hours_lost += other.gpu_hours_lost


def _gpu(attempt: Attempt, episode: EpisodeRecord) -> str:
    return f"{episode.node} {episode.bus}".strip() if episode.bus else ""


def _link(attempt: Attempt, episode: EpisodeRecord) -> str:
    ends = sorted((episode.node, episode.peer))  # the same one from either side
    return " - ".join(ends) if episode.peer else ""


KEYS: dict[str, Callable[[Attempt, EpisodeRecord], str]] = {
    "node": lambda attempt, episode: episode.node,
    "gpu": _gpu,
    "link": _link,
    "cause": lambda attempt, episode: episode.cause or episode.kind,
    "user": lambda attempt, episode: attempt.run.user,
}


def sums(attempts: Iterable[Attempt], by: str) -> dict[str, Group]:
    """Groups by one of KEYS."""
    key_of, found = KEYS[by], dict[str, Group]()
    for attempt in attempts:
        for episode in attempt.episodes:
            key = key_of(attempt, episode) or UNATTRIBUTED
            found.setdefault(key, Group(key)).add(attempt, episode)
    return found


def merged(parts: Iterable[dict[str, Group]]) -> list[Group]:
    """Groups of several parts of the jobs, the costliest first."""
    found = dict[str, Group]()
    for part in parts:
        for key, row in part.items():
            found.setdefault(key, Group(key)).merge(row)
    return sorted(found.values(), key=lambda row: (-row.lost_s, row.key))
