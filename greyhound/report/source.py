"""Where a report's rows come from: sacct joined with the records, or the records alone where sacct fails."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from greyhound.report.build import Attempt, Totals, attempts, by_job
from greyhound.report.fallback import Wanted, attempts_of_records
from greyhound.report.folders import jobs_below, steps_of
from greyhound.report.parallel import in_order
from greyhound.report.records import StepRecord
from greyhound.slurm.accounting import JobRun
from greyhound.slurm.client import SlurmError
from greyhound.slurm.sacct import SILENCE_S, Filter, read_runs

T = TypeVar("T")


class Source:
    """Runs with their records; keeps count while they pass, and why accounting stopped if it did."""

    def __init__(self, chosen: Filter, roots: list[Path], wanted: Wanted, silence_s: float = SILENCE_S) -> None:
        """``wanted`` is what ``chosen`` asks of accounting, as far as the records can answer it."""
        self._chosen = chosen
        self._roots = roots
        self._wanted = wanted
        self._silence_s = silence_s
        self.totals = Totals()
        self.failure = ""

    def steps(self, job: str, running: bool) -> list[StepRecord]:
        """A job's records."""
        return steps_of(self._roots, job, running)

    def _accounted(self) -> list[JobRun]:
        """As many as there are: a failure of sacct's is kept."""
        runs: list[JobRun] = []
        try:
            for run in read_runs(self._chosen, silence_s=self._silence_s, tell=self.totals.problem):
                runs.append(run)
        except SlurmError as error:
            self.failure = str(error)
        return runs

    def attempts(self) -> Iterator[Attempt]:
        """All of them; after a failure of sacct's those that only the records know."""
        runs = self._accounted()
        yield from self.totals.counting(attempts(by_job(runs), self.steps))
        yield from self.totals.counting(self._others(runs))

    def parts(self, render: Callable[[Iterable[Attempt]], T]) -> Iterator[T]:
        """What ``render`` makes of them, some at a time and in order; on several cores where there are many."""
        runs = self._accounted()

        def work(jobs: Sequence[list[JobRun]]) -> tuple[T, Totals]:
            totals = Totals()
            return render(totals.counting(attempts(jobs, self.steps))), totals

        for part, totals in in_order(by_job(runs), work):
            self.totals.merge(totals)
            yield part
        yield render(self.totals.counting(self._others(runs)))

    def _others(self, runs: list[JobRun]) -> Iterator[Attempt]:
        """What accounting should have told and didn't: shown where it failed, else named."""
        seen = {run.raw_id for run in runs} if self.failure or self._chosen.jobs else set()
        if self.failure:
            yield from attempts_of_records(self._unseen(seen), self.steps, self._wanted)
        elif self._chosen.jobs:
            self._miss(seen | {str(run.job.job) for run in runs})

    def _unseen(self, seen: set[str]) -> list[str]:
        named = [job.partition("_")[0].partition("+")[0] for job in self._chosen.jobs.split(",") if job]
        return [job for job in named or jobs_below(self._roots) if job not in seen]

    def _miss(self, seen: set[str]) -> None:
        for job in self._chosen.jobs.split(","):
            if job.partition("_")[0].partition("+")[0].partition(".")[0] not in seen:
                self.failure = f"accounting knows no job {job} (of yours, at that time): try --all-users or --since"
