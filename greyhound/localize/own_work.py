"""Ranks whose own work takes longer: than that of ranks with the same work, or than their own in the reference.

Own time is what passes between a rank's calls. Waiting for others happens inside calls, so the slow rank's own time
grows and its victims' does not.
"""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from greyhound.localize.limits import Limits
from greyhound.localize.stats import level, low_median, others_low_median, standard_error
from greyhound.localize.table import Floats, Iterations


@dataclass(frozen=True)
class Growth:
    """By how much a rank's own time exceeds what it should be, in seconds an iteration.

    `gpu_s`, `host_s` and `boundary_s` are its parts (`boundary_s` overlaps with `host_s`). `ratio`: against what it
    should be; `deviations`: in standard errors; `steady`: share of the iterations in which it was longer. `than`:
    "equals" or "reference".
    """

    rank: int
    own_s: float
    gpu_s: float
    host_s: float
    boundary_s: float
    ratio: float
    deviations: float
    steady: float
    iteration_s: float
    than: str

    def slow(self, limits: Limits) -> bool:
        """Whether that is slow beyond doubt."""
        return (
            self.ratio >= limits.own_ratio
            and self.own_s >= limits.iteration_share * self.iteration_s
            and self.deviations >= limits.deviations
            and self.steady >= limits.steady
        )


@dataclass(frozen=True)
class _Parts:
    """Levels of a rank's iterations."""

    own_s: float
    gpu_s: float
    host_s: float
    boundary_s: float
    error: float


def _parts(rows: Iterations) -> _Parts:
    return _Parts(level(rows.own), level(rows.gpu), level(rows.host), level(rows.boundary), standard_error(rows.own))


def _growth(rank: int, now: Iterations, parts: _Parts, base: _Parts, than: str) -> Growth:
    ratio = parts.own_s / base.own_s
    error = float(np.hypot(parts.error, base.error))
    return Growth(
        rank,
        parts.own_s - base.own_s,
        parts.gpu_s - base.gpu_s,
        parts.host_s - base.host_s,
        parts.boundary_s - base.boundary_s,
        ratio,
        float(np.log(ratio)) / error,
        float(np.mean(now.own > base.own_s * (1 + 0.25 * (ratio - 1)))),
        level(now.total),
        than,
    )


def _usable(parts: _Parts) -> bool:
    return parts.own_s > 0


def against_equals(now: Sequence[Iterations], equals: Sequence[Hashable]) -> dict[int, Growth]:
    """Growth of each rank against the low median of the others that share its key in `equals`; none without others."""
    alike: dict[Hashable, list[int]] = defaultdict(list)
    parts = [_parts(rows) for rows in now]
    for rank, key in enumerate(equals):
        if _usable(parts[rank]):
            alike[key].append(rank)
    found = {}
    for ranks in alike.values():
        if len(ranks) > 1:
            found.update(_cluster(now, parts, ranks))
    return found


def _cluster(now: Sequence[Iterations], parts: Sequence[_Parts], ranks: list[int]) -> dict[int, Growth]:
    def others(name: str) -> Floats:
        return others_low_median(np.array([getattr(parts[rank], name) for rank in ranks]))

    error = low_median([parts[rank].error for rank in ranks])
    rows = np.stack([others(name) for name in ("own_s", "gpu_s", "host_s", "boundary_s")], axis=1).tolist()
    return {
        rank: _growth(rank, now[rank], parts[rank], _Parts(own, gpu, host, boundary, error), "equals")
        for rank, (own, gpu, host, boundary) in zip(ranks, rows, strict=True)
    }


def against_reference(now: Sequence[Iterations], before: Sequence[Iterations | None]) -> dict[int, Growth]:
    """Growth of each rank against its own reference, where that is known."""
    found = {}
    for rank, (rows, earlier) in enumerate(zip(now, before, strict=True)):
        if earlier is None or len(rows) == 0 or len(earlier) == 0:
            continue
        parts, base = _parts(rows), _parts(earlier)
        if _usable(parts) and _usable(base):
            found[rank] = _growth(rank, rows, parts, base, "reference")
    return found
