"""Joins accounting with the records: one row a run of a job, unmonitored ones too. Pure."""

import pwd
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from greyhound.report.records import EpisodeRecord, StepRecord
from greyhound.slurm.accounting import JobRun

HOUR_S = 3600.0
NOT_STARTED = "never started"
NO_RECORD = "no record: it ran without Greyhound, or its record is elsewhere"


@dataclass(frozen=True)
class Attempt:
    """One run of a job (``restart`` counts its requeues) with the steps that were watched in it."""

    run: JobRun
    restart: int
    steps: tuple[StepRecord, ...]
    problems: tuple[str, ...] = ()

    @property
    def monitored(self) -> bool:
        """Whether any step of it was tracked."""
        return any(step.tracked for step in self.steps)

    @property
    def why_not(self) -> str:
        """Why it wasn't monitored; empty if it was."""
        if self.monitored:
            return ""
        if self.run.start_s is None:
            return NOT_STARTED
        return next((step.unmonitored for step in self.steps if step.unmonitored), NO_RECORD if not self.steps else "")

    @property
    def episodes(self) -> list[EpisodeRecord]:
        """All fail-slows of its steps."""
        return [episode for step in self.steps for episode in step.episodes]

    @property
    def iterations(self) -> int:
        """Iterations of all its steps."""
        return sum(step.iterations for step in self.steps)

    @property
    def lost_s(self) -> float:
        """Seconds lost to fail-slows."""
        return sum(step.lost_s for step in self.steps)

    @property
    def gpu_hours_lost(self) -> float:
        """The loss times the GPUs that waited (of the ranks tracked, where accounting counts no GPUs)."""
        gpus = self.run.gpus or max((step.tracked for step in self.steps), default=0)
        return self.lost_s * gpus / HOUR_S

    @property
    def jct_slowdown(self) -> float | None:
        """Elapsed time over what it would have been; None where nothing is known."""
        if not self.monitored or self.run.elapsed_s <= 0:
            return None
        return self.run.elapsed_s / max(self.run.elapsed_s - self.lost_s, 0.01 * self.run.elapsed_s)


@dataclass
class Totals:
    """What a report sums up."""

    jobs: int = 0
    attempts: int = 0
    monitored: int = 0
    unmonitored: int = 0
    not_started: int = 0
    fail_slows: int = 0
    lost_s: float = 0.0
    gpu_hours_lost: float = 0.0
    problems: list[str] = field(default_factory=list)

    def add(self, attempt: Attempt) -> None:
        """Count one run."""
        self.jobs += attempt.restart == 0
        self.attempts += 1
        self.monitored += attempt.monitored
        self.not_started += attempt.run.start_s is None
        self.unmonitored += not attempt.monitored and attempt.run.start_s is not None
        self.fail_slows += len(attempt.episodes)
        self.lost_s += attempt.lost_s
        self.gpu_hours_lost += attempt.gpu_hours_lost
        self.problems += attempt.problems


def user_id(user: str) -> int | None:
    """The uid of a user, None where this machine doesn't know them."""
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        return None


def attempts(
    runs: Iterable[JobRun],
    steps_of: Callable[[str, bool], list[StepRecord]],
    uid_of: Callable[[str], int | None] = user_id,
) -> Iterator[Attempt]:
    """All runs in accounting's order; ``steps_of`` gives a job's records by its raw id and whether it runs.

    The k-th run of a job by start is its restart k (Slurm's SLURM_RESTART_COUNT). A record that belongs to another
    user than the job is no record of it.
    """
    by_job: dict[str, list[JobRun]] = defaultdict(list)
    for run in runs:
        by_job[run.raw_id].append(run)
    for raw_id, its_runs in by_job.items():
        its_runs.sort(key=lambda run: (run.start_s is None, run.start_s or 0.0, run.submit_s or 0.0))
        records = steps_of(raw_id, not its_runs[-1].ended)
        uid = uid_of(its_runs[0].user)
        foreign = [record for record in records if uid is not None and record.owner_uid not in (uid, -1)]
        ours = [record for record in records if record not in foreign]
        for restart, run in enumerate(its_runs):
            steps = tuple(record for record in ours if record.name.restart == restart)
            problems = [problem for step in steps for problem in step.problems]
            if foreign and restart == 0:
                problems.append(f"job {raw_id}: {len(foreign)} records belong to another user and are left out")
            yield Attempt(run, restart, steps, tuple(problems))
