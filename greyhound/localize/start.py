"""Slow from the start: nothing has changed, so no fail-slow is reported, and yet somebody or everybody is slow.

Ranks with the same work are compared with one another; where they are alike, the whole job with what an earlier run of
the same work on the same GPUs took.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from greyhound.localize.evidence import Evidence, evidence_of
from greyhound.localize.judge import judge
from greyhound.localize.limits import DEFAULT, Limits
from greyhound.localize.model import RankProfile, Suspect, Verdict
from greyhound.localize.stats import level
from greyhound.localize.table import Floats

_ALIKE = 1.05
"""Of an earlier run's iterations: runs of the same work on the same machines differ by less."""


@dataclass(frozen=True)
class Shape:
    """What an iteration of a healthy run is made of, medians over its ranks, in seconds. A run remembers its own.

    `gpu_s`: own time on the GPU; `host_s`: own time before the host's calls, between iterations left out; `boundary_s`:
    between iterations; `transfer_s`: transfers, without waiting for the last member.
    """

    iteration_s: float
    gpu_s: float
    host_s: float
    boundary_s: float
    transfer_s: float


_KINDS = (("gpu", "gpu_s"), ("cpu", "host_s"), ("input", "boundary_s"), ("link", "transfer_s"))


def shape_of(profiles: Sequence[RankProfile]) -> Shape | None:
    """The shape of a run; None where no rank finished an iteration or GPU times aren't known."""
    found = evidence_of(profiles)
    return _shape(found) if found.profiles and found.timed else None


def _shape(found: Evidence) -> Shape:
    def middle(values: Sequence[float]) -> float:
        return float(np.median(values))

    rows = found.iterations
    paused = [level(np.minimum(row.boundary, row.host)) for row in rows]
    return Shape(
        found.iteration_s,
        middle([level(row.gpu) for row in rows]),
        middle([max(level(row.host) - pause, 0.0) for row, pause in zip(rows, paused, strict=True)]),
        middle(paused),
        middle(_transfers(found).tolist()),
    )


def _transfers(found: Evidence) -> Floats:
    """Seconds of transfers an iteration, by rank."""
    seconds = np.zeros(len(found.profiles))
    for channel in found.channels:
        seconds[list(channel.members)] += channel.iteration_s
    return seconds


def judge_start(
    now: Sequence[RankProfile],
    earlier_s: float | None = None,
    earlier: Shape | None = None,
    limits: Limits = DEFAULT,
    verdict: Verdict | None = None,
) -> Verdict:
    """Who is slow although nothing has changed.

    `earlier_s`: seconds of an iteration in earlier runs of the same work, as many ranks and the same GPU model;
    `earlier`: what an iteration was made of then, if it is known. Without them only unequal ranks can be found.
    `verdict`: of the same profiles, where it is known who is slower than others.
    """
    if verdict is None:
        verdict = judge(now, None, None, limits)
    if earlier is not None:
        earlier_s = earlier.iteration_s
    if verdict.suspects or earlier_s is None or not earlier_s > 0:
        return verdict
    found = evidence_of(now)
    if not found.profiles or not found.iteration_s > _ALIKE * earlier_s:
        return verdict
    return _all_alike(found, earlier_s, earlier, limits)


def _all_alike(found: Evidence, earlier_s: float, earlier: Shape | None, limits: Limits) -> Verdict:
    ratio = found.iteration_s / earlier_s
    lost_s = found.iteration_s - earlier_s
    text = f"all ranks alike: {ratio:.2f} x the iteration time of earlier runs of the same work; no node is blamed"
    kind, why = "unknown", "what of it takes longer isn't known"
    if found.timed and earlier is not None:
        kind, why = _grown(_shape(found), earlier, lost_s, limits)
    elif found.timed:
        kind, why = _large_enough(_shape(found), lost_s, limits)
    suspect = Suspect(kind, (), (), ratio=ratio, share=1.0, confidence=0.6, reasons=(text, why))
    return Verdict((suspect,), 1.0, notes=found.notes)


def _grown(now: Shape, earlier: Shape, lost_s: float, limits: Limits) -> tuple[str, str]:
    """The part that has grown, if it explains the loss; waiting in pipelines grows with the GPU's part."""
    for kind, name in _KINDS:
        was_s, is_s = getattr(earlier, name), getattr(now, name)
        grown_s = is_s - was_s
        if kind == "gpu" and was_s > 0:
            grown_s = max(grown_s, (is_s / was_s - 1) * earlier.iteration_s)
        if grown_s >= limits.explained * lost_s and is_s > was_s > 0:
            return kind, f"{_WORDS[kind]}: {is_s / was_s:.2f} x what they were then"
    return "unknown", "no single part of the iteration has grown by as much"


def _large_enough(now: Shape, lost_s: float, limits: Limits) -> tuple[str, str]:
    """The only part that is large enough to hold the loss."""
    able = [(kind, name) for kind, name in _KINDS if getattr(now, name) >= limits.explained * lost_s]
    if len(able) == 1:
        kind = able[0][0]
        return kind, f"{_WORDS[kind]} are the only part of the iteration that is as long as what is lost"
    return "unknown", "it may be " + " or ".join(_WORDS[kind] for kind, _ in able) if able else "no part is as long"


_WORDS = {
    "gpu": "the GPUs' own times",
    "cpu": "the hosts' times between calls",
    "input": "the pauses between iterations",
    "link": "the transfers",
}
