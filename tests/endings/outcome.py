"""One ending, watched or not: exit code, what was left, how long srun took to come back."""

from dataclasses import dataclass

from tests.endings.bed import Bed
from tests.endings.ways import Way, ready


@dataclass(frozen=True)
class Ending:
    """`end_s`: from the end of the last task to srun's return; `said`: our lines beside the usual last one."""

    code: int
    end_s: float
    state: str
    said: tuple[str, ...] = ()


def end_once(bed: Bed, way: Way, watched: bool, followed: bool = True) -> Ending:
    """Start a step, end it this way, and see that nothing of ours is left. AssertionError where something is."""
    with way.begin(bed, watched) as step:
        ready(way, step, followed)
        job = step.find_job()
        way.act(step)
        gone_s = step.gone_s(way.waits_s)
        code = step.wait(way.waits_s)
        state = bed.sandbox.wait(job)
        step.assert_nothing_left()
        return Ending(code, step.returned_s - gone_s, state, tuple(step.said()))
