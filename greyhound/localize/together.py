"""What all ranks have in common: slow storage or input stops everybody, and no node is to blame."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from greyhound.localize.limits import Limits
from greyhound.localize.table import Iterations

_PAUSES = 0.3  # of the mean growth: if the middle iteration has grown by less, only some iterations pause
_QUARTILE = 0.25
_MOSTLY = 0.5  # of the loss: the rest may be that everybody waits for the longest pause of all


@dataclass(frozen=True)
class Pauses:
    """Growth of the gap between iterations on all ranks: seconds an iteration (mean), and against the mean iteration
    that the reference had. `kind`: "storage" if only some iterations pause, as with checkpoints, else "input"."""

    kind: str
    cost_s: float
    ratio: float


def _mean_growth(now: Sequence[Iterations], before: Sequence[Iterations | None], name: str) -> list[float]:
    return [
        float(np.mean(getattr(rows, name)) - np.mean(getattr(earlier, name)))
        for rows, earlier in zip(now, before, strict=True)
        if earlier is not None and len(rows) and len(earlier)
    ]


def pauses_of_all(now: Sequence[Iterations], before: Sequence[Iterations | None], limits: Limits) -> Pauses | None:
    """Pauses between iterations that nearly all ranks have and had less of in the reference; None if there are none."""
    boundary = _mean_growth(now, before, "boundary")
    if len(boundary) < 2:
        return None
    cost_s = float(np.quantile(boundary, _QUARTILE))
    iteration_s = float(np.median([np.mean(rows.total) for rows in now]))
    lost_s = float(np.median(_mean_growth(now, before, "total")))
    if cost_s < limits.iteration_share * iteration_s or cost_s < _MOSTLY * lost_s:
        return None
    if float(np.quantile(_mean_growth(now, before, "host"), _QUARTILE)) < _MOSTLY * cost_s:
        return None  # the GPUs were at work: ragged micro-batches, which data-parallel ranks have in that gap
    usual = [
        float(np.median(rows.boundary) - np.median(earlier.boundary))
        for rows, earlier in zip(now, before, strict=True)
        if earlier is not None and len(rows) and len(earlier)
    ]
    kind = "storage" if float(np.median(usual)) < _PAUSES * cost_s else "input"
    longest_s = _longest_s(now) - _longest_s([earlier for earlier in before if earlier is not None and len(earlier)])
    return Pauses(kind, max(cost_s, longest_s), iteration_s / (iteration_s - lost_s))


def _longest_s(rows: Sequence[Iterations]) -> float:
    """The mean over iterations of the longest gap of any rank: everybody waits for that one."""
    count = min(len(iterations) for iterations in rows)
    return float(np.mean(np.max([iterations.boundary[-count:] for iterations in rows], axis=0)))
