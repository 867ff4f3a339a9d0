"""Joins accounting with the records: one row a run of a job, unmonitored ones too. Pure, but for who a user is."""

import functools
import pwd
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields

from greyhound.control.summary import NOT_TRACKED, Summary, component_name, strategies_in
from greyhound.report.records import EpisodeRecord, StepRecord
from greyhound.slurm.accounting import JobRun

HOUR_S = 3600.0
DAY_S = 86_400.0
PROBLEMS_KEPT = 1000
NOT_STARTED = "never started"
NO_RECORD = "no record: it ran without Greyhound, or its record is elsewhere"

Steps = Callable[[str, bool], list[StepRecord]]
"""Gives a job's records by its raw id, and whether the job still runs."""


@dataclass(frozen=True)
class Attempt:
    """One run of a job (``restart`` counts its requeues) with the steps that were watched in it."""

    run: JobRun
    restart: int
    steps: tuple[StepRecord, ...]
    problems: tuple[str, ...] = ()
    accounted: bool = True
    """Whether accounting knows it; else all that is known is what its record says."""

    @functools.cached_property
    def monitored(self) -> bool:
        """Whether any step of it was tracked."""
        return any(step.tracked for step in self.steps)

    @property
    def record(self) -> str:
        """What became of its record: running, killed (no last word), ended, unreadable; empty where there is none."""
        states = {step.state for step in self.steps}
        return next((state for state in ("running", "killed", "ended") if state in states), next(iter(states), ""))

    @property
    def why_not(self) -> str:
        """Why it wasn't monitored; empty if it was."""
        if self.monitored:
            return ""
        if self.run.start_s is None:
            return NOT_STARTED
        if not self.steps:
            return NO_RECORD
        return next((step.unmonitored for step in self.steps if step.unmonitored), NOT_TRACKED)

    @functools.cached_property
    def episodes(self) -> list[EpisodeRecord]:
        """All fail-slows of its steps."""
        return [episode for step in self.steps for episode in step.episodes]

    @property
    def iterations(self) -> int:
        """Iterations of all its steps."""
        return sum(step.iterations for step in self.steps)

    @functools.cached_property
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
    not_accounted: int = 0
    killed: int = 0
    fail_slows: int = 0
    lost_s: float = 0.0
    gpu_hours_lost: float = 0.0
    problem_count: int = 0
    problems: list[str] = field(default_factory=list)
    """The first PROBLEMS_KEPT of them."""
    _last_job: str = field(default="", repr=False)

    def add(self, attempt: Attempt) -> None:
        """Count one run; those of a job come one after the other."""
        self.jobs += attempt.run.raw_id != self._last_job
        self._last_job = attempt.run.raw_id
        self.attempts += 1
        self.monitored += attempt.monitored
        self.not_started += attempt.run.start_s is None
        self.unmonitored += not attempt.monitored and attempt.run.start_s is not None
        self.not_accounted += not attempt.accounted
        self.killed += attempt.record == "killed"
        self.fail_slows += len(attempt.episodes)
        self.lost_s += attempt.lost_s
        self.gpu_hours_lost += attempt.gpu_hours_lost
        for problem in attempt.problems:
            self.problem(problem)

    def counting(self, attempts: Iterable[Attempt]) -> Iterator[Attempt]:
        """The same runs, counted while they pass."""
        for attempt in attempts:
            self.add(attempt)
            yield attempt

    def merge(self, other: "Totals") -> None:
        """Count other jobs' sums in."""
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.problems += other.problems[: PROBLEMS_KEPT - len(self.problems)]

    def problem(self, text: str) -> None:
        """Count what couldn't be read."""
        self.problem_count += 1
        if len(self.problems) < PROBLEMS_KEPT:
            self.problems.append(text)


_COUNTS = tuple(item.name for item in fields(Totals) if item.type in ("int", int, "float", float))


@functools.lru_cache(maxsize=65_536)
def user_id(user: str) -> int | None:
    """The uid of a user, None where this machine doesn't know them."""
    try:
        return pwd.getpwnam(user).pw_uid
    except (KeyError, ValueError):
        return None


def by_job(runs: Iterable[JobRun]) -> list[list[JobRun]]:
    """The runs of each job together, in accounting's order."""
    found: dict[tuple[str, str], list[JobRun]] = {}
    for run in runs:
        found.setdefault((run.raw_id, run.user), []).append(run)
    return list(found.values())


def attempts(
    jobs: Iterable[list[JobRun]], steps_of: Steps, uid_of: Callable[[str], int | None] = user_id
) -> Iterator[Attempt]:
    """All runs of each job, joined with its records.

    The k-th run of a job by start is its restart k (Slurm's SLURM_RESTART_COUNT), where accounting told the first one,
    too. A record that belongs to another user than the job is no record of it.
    """
    for its_runs in jobs:
        raw_id = its_runs[0].raw_id
        records = steps_of(raw_id, not all(run.ended for run in its_runs))
        uid = uid_of(its_runs[0].user)
        ours = [record for record in records if uid is None or record.owner_uid in (uid, -1)]
        foreign = len(records) - len(ours)
        told = f"job {raw_id}: {foreign} records belong to another user and are left out"
        yield from _joined(its_runs, ours, [told] if foreign else [])


def _joined(runs: list[JobRun], records: list[StepRecord], problems: list[str]) -> Iterator[Attempt]:
    if len(runs) > 1:
        runs.sort(key=lambda run: (run.start_s is None, run.start_s or 0.0, run.submit_s or 0.0))
    before = _unseen(runs, records)
    for place, run in enumerate(runs):
        steps = tuple(record for record in records if record.name.restart == place + before)
        found = [*(problems if place == 0 else []), *(problem for step in steps for problem in step.problems)]
        yield Attempt(run, place + before, steps, tuple(found))


def _unseen(runs: Sequence[JobRun], records: Sequence[StepRecord]) -> int:
    """How many earlier runs accounting wasn't asked for: the number with which the records' times fit best."""
    most = max((record.name.restart for record in records), default=0)
    if most == 0:
        return 0
    return min(range(most + 1), key=lambda before: (_misfit_s(runs, records, before), before))


def _misfit_s(runs: Sequence[JobRun], records: Sequence[StepRecord], before: int) -> float:
    """Mean distance (s) of the records' begin from the run that they would be of; a day where none would."""
    away_s = []
    for record in records:
        place = record.name.restart - before
        if 0 <= place < len(runs) and record.start_s is not None:
            start_s = runs[place].start_s
            end_s = runs[place].end_s or record.start_s
            away_s.append(DAY_S if start_s is None else max(start_s - record.start_s, record.start_s - end_s, 0.0))
    return sum(away_s) / len(away_s) if away_s else DAY_S


def summary_of(steps: Iterable[StepRecord]) -> Summary:
    """What the steps of a job, of all its runs, come to: the line in its comments."""
    found = Summary()
    for step in steps:
        rows = step.episodes
        found += Summary(
            fail_slows=len(rows),
            slow_s=sum(row.duration_s or 0.0 for row in rows),
            worst=max((row.slowdown for row in rows), default=0.0),
            strategies=tuple(
                sorted({name for row in rows for action in row.actions for name in strategies_in(action)})
            ),
            components=(
                *filter(None, (component_name(row.node, row.bus, row.peer, row.kind) for row in rows)),
                *step.components,
            ),
            unmonitored=step.unmonitored,
            watched=step.tracked > 0,
        )
    return found
