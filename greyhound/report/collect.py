"""Which jobs' AdminComment gets which line: those that are over and have a record, unless somebody else wrote there."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from greyhound.control.summary import is_ours
from greyhound.report.build import Attempt, Steps, summary_of
from greyhound.report.folders import UNREADABLE


@dataclass(frozen=True)
class Line:
    """What should stand in a job's AdminComment, and whether what is there lets us."""

    job: int
    text: str
    there: str

    @property
    def done(self) -> bool:
        """Whether it stands there already."""
        return self.there.strip() == self.text

    @property
    def foreign(self) -> bool:
        """Whether another's text is there, which stays."""
        return not is_ours(self.there)


def lines(attempts: Iterable[Attempt], steps_of: Steps) -> Iterator[Line]:
    """One a job whose newest run is over and that has a record of its user's; the runs of a job come together.

    All of its runs count, those before the time that was asked for, too: the line stands for the job.
    """
    for raw_id, group in groupby(attempts, key=lambda attempt: attempt.run.raw_id):
        runs = list(group)
        newest = runs[-1].run
        owners = {step.owner_uid for attempt in runs for step in attempt.steps} - {-1}
        if not owners or not newest.ended or not raw_id.isdecimal():
            continue
        steps = [step for step in steps_of(raw_id, False) if step.owner_uid in owners and step.state != UNREADABLE]
        yield Line(int(raw_id), summary_of(steps).text(), newest.admin_comment)
