"""What the records alone say, where accounting can't be asked: who and when, but neither state nor GPUs."""

import pwd
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from greyhound.report.build import Attempt
from greyhound.report.records import StepRecord
from greyhound.slurm import jobid
from greyhound.slurm.accounting import JobRun

STATE = "UNKNOWN"


@dataclass(frozen=True)
class Wanted:
    """Which runs; empty fields take all. Times are seconds since the epoch."""

    users: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()
    since_s: float | None = None
    until_s: float | None = None

    def takes(self, run: JobRun) -> bool:
        """Whether a run is among them; one whose times aren't known is."""
        if self.users and run.user not in self.users:
            return False
        if self.nodes and self.nodes.isdisjoint(run.nodes):
            return False
        too_old = self.since_s is not None and run.end_s is not None and run.end_s < self.since_s
        return not too_old and (self.until_s is None or run.start_s is None or run.start_s <= self.until_s)


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return str(uid)


def _run(job: str, steps: list[StepRecord]) -> JobRun:
    starts = [step.start_s for step in steps if step.start_s is not None]
    lasts = [step.last_s for step in steps if step.last_s is not None]
    start_s, end_s = min(starts, default=None), max(lasts, default=None)
    return JobRun(
        raw_id=job,
        job=jobid.parse(job),
        user=_user(steps[0].owner_uid),
        account="",
        partition="",
        state=STATE,
        exit_code="",
        submit_s=None,
        start_s=start_s if start_s is not None else end_s,
        end_s=end_s,
        elapsed_s=max(0.0, end_s - start_s) if start_s is not None and end_s is not None else 0.0,
        node_list=next((step.node_list for step in steps if step.node_list), ""),
        gpus=0,
        name="",
        comment="",
        admin_comment="",
    )


def attempts_of_records(
    jobs: Iterable[str], steps_of: Callable[[str, bool], list[StepRecord]], wanted: Wanted
) -> Iterator[Attempt]:
    """A row a run of each job that has a readable record."""
    for job in jobs:
        found = [step for step in steps_of(job, False) if step.owner_uid >= 0]
        found.sort(key=_run_of)
        for (restart, _), steps in groupby(found, key=_run_of):
            its = list(steps)
            run = _run(job, its)
            if wanted.takes(run):
                problems = tuple(problem for step in its for problem in step.problems)
                yield Attempt(run, restart, tuple(its), problems, accounted=False)


def _run_of(step: StepRecord) -> tuple[int, int]:
    return step.name.restart, step.owner_uid
