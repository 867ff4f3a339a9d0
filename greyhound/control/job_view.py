"""What localisation needs to know of a job: who is there, how busy, what can't be seen. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from greyhound.control.job import Job
from greyhound.control.messages import RankSample
from greyhound.control.runs import SLOWER
from greyhound.control.states import State
from greyhound.localize.model import Verdict

SHOWN = 5


def living(job: Job) -> dict[str, RankSample]:
    """Samples of the living ranks by node index and key."""
    return {key: sample for key, sample in job.samples.items() if sample.alive}


def all_healthy(job: Job) -> bool:
    """Whether the healthy time of all living ranks is known."""
    samples = living(job).values()
    return bool(samples) and all(sample.locked and sample.healthy_s > 0 for sample in samples)


def calls_per_s(job: Job) -> float:
    """Of the busiest rank; 0.0 while unknown."""
    return max((sample.calls / sample.seconds for sample in living(job).values() if sample.seconds > 0), default=0.0)


def why_unseen(job: Job) -> str:
    """Why no profile can be taken of the job, or nothing."""
    if job.machine.state not in (State.TRACKING, State.SUSPECT):
        return f"the job is {job.machine.state.value.replace('_', ' ')}"
    return "" if job.nodes_with_ranks else "no rank is seen yet"


def lost_s_per_iteration(job: Job, episode: str | None) -> float | None:
    """Seconds an iteration of a fail-slow that is open."""
    current = job.merger.current
    if current is None or current.id != episode:
        return None
    return max(0.0, current.slow_s - current.healthy_s)


def earlier_s(job: Job) -> float | None:
    """Seconds an iteration of earlier runs of the same work, where this run is slower than they were."""
    runs = job.runs
    if runs is None or runs["fingerprint"] != job.fingerprint or runs["slowdown"] < 1 + SLOWER:
        return None
    return float(runs["earlier_s"])


def unmonitored(job: Job) -> list[str]:
    """Nodes of the step that nothing is seen of: never heard, fallen silent, or muted."""
    names = [node.name for _, node in sorted(job.nodes.items()) if node.silence or node.muted]
    missing = sorted(set(range(job.node_count)) - set(job.nodes))
    return names + [f"node {index}" for index in missing]


def with_blind_spots(verdict: Verdict, job: Job, silent: Sequence[str] = ()) -> Verdict:
    """The verdict, and what it doesn't know: where nobody is named, that may be why."""
    blind = list(dict.fromkeys([*unmonitored(job), *silent]))
    if not blind:
        return verdict
    more = f" and {len(blind) - SHOWN} more" if len(blind) > SHOWN else ""
    verb = "is" if len(blind) == 1 else "are"
    said = f"{', '.join(blind[:SHOWN])}{more} {verb} unmonitored"
    if verdict.suspects:
        return replace(verdict, notes=(*verdict.notes, said))
    why = f"{said}; {verdict.abstained}" if verdict.abstained else said
    return replace(verdict, abstained=why)
