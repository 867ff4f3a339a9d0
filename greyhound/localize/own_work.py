"""Ranks whose own work takes longer: than that of ranks with the same work, or than their own in the reference.

Own time is what passes between a rank's calls. Waiting for others happens inside calls, so the slow rank's own time
grows and its victims' does not.
"""

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from greyhound.localize.limits import Limits
from greyhound.localize.stats import (
    error,
    hardly_by_chance,
    level,
    low_median,
    others_low_median,
    pooled_spread,
    spread,
    with_prior,
)
from greyhound.localize.table import Iterations

_MEDIAN_INEFFICIENCY = 1.2533  # standard error of a normal sample's median over that of its mean


@dataclass(frozen=True)
class Growth:
    """By how much a rank's own time exceeds what it should be, in seconds an iteration.

    `gpu_s`, `host_s` and `boundary_s` are its parts (`boundary_s` overlaps with both). `ratio`: against what it should
    be; `certainty`: the excess over what chance may do (1: just beyond that); `steady`: share of the iterations in
    which it was longer. `than`: "equals" or "reference".
    """

    rank: int
    own_s: float
    gpu_s: float
    host_s: float
    boundary_s: float
    ratio: float
    certainty: float
    steady: float
    iteration_s: float
    than: str

    def slow(self, limits: Limits) -> bool:
        """Whether that is slow beyond doubt."""
        return (
            self.ratio >= limits.own_ratio
            and self.own_s >= limits.iteration_share * self.iteration_s
            and self.certainty >= 1.0
            and self.steady >= limits.steady
        )


@dataclass(frozen=True)
class _Parts:
    """Levels of a rank's iterations; `error`: relative, of the own time."""

    own_s: float
    gpu_s: float
    host_s: float
    boundary_s: float
    error: float


def _levels(parts: _Parts) -> tuple[float, float, float, float]:
    return parts.own_s, parts.gpu_s, parts.host_s, parts.boundary_s


def _parts(rows: Iterations, common_spread: float, freedom: float) -> _Parts:
    mine = spread(rows.own)
    # A rank that is less even than others is known less well.
    deviation = common_spread if not mine > common_spread else math.sqrt((mine**2 + common_spread**2) / 2)
    known = error(with_prior(deviation, freedom), len(rows))
    return _Parts(level(rows.own), level(rows.gpu), level(rows.host), level(rows.boundary), known)


def _growth(
    rank: int, now: Iterations, parts: _Parts, base: _Parts, than: str, hardly: float, limits: Limits
) -> Growth:
    ratio = parts.own_s / base.own_s
    deviation = math.sqrt(parts.error**2 + base.error**2 + limits.natural**2)
    return Growth(
        rank,
        parts.own_s - base.own_s,
        parts.gpu_s - base.gpu_s,
        parts.host_s - base.host_s,
        parts.boundary_s - base.boundary_s,
        ratio,
        math.log(ratio) / (deviation * hardly),
        float(np.mean(now.own > base.own_s * (1 + 0.25 * (ratio - 1)))),
        level(now.total),
        than,
    )


def _common_spread(rows: Sequence[Iterations]) -> tuple[float, float]:
    """Spread of the ranks' iterations around their own levels, and its degrees of freedom."""
    return pooled_spread([iterations.own for iterations in rows])


def _working(rows: Iterations) -> bool:
    return len(rows) > 0 and level(rows.own) > 0


def against_equals(now: Sequence[Iterations], equals: Sequence[Hashable], limits: Limits) -> dict[int, Growth]:
    """Growth of each rank against the low median of the others that share its key in `equals`; none without others."""
    alike: dict[Hashable, list[int]] = defaultdict(list)
    for rank, key in enumerate(equals):
        if _working(now[rank]):
            alike[key].append(rank)
    found = {}
    for ranks in alike.values():
        if len(ranks) > 1:
            found.update(_cluster(now, ranks, limits))
    return found


def _cluster(now: Sequence[Iterations], ranks: list[int], limits: Limits) -> dict[int, Growth]:
    common, freedom = _common_spread([now[rank] for rank in ranks])
    parts = [_parts(now[rank], common, freedom) for rank in ranks]
    others = [others_low_median(np.array(values)) for values in zip(*map(_levels, parts), strict=True)]
    averaged = max(math.sqrt(len(ranks) - 1) / _MEDIAN_INEFFICIENCY, 1.0)
    base_error = low_median([part.error for part in parts]) / averaged
    hardly = hardly_by_chance(freedom, len(now), limits)
    return {
        rank: _growth(rank, now[rank], part, _Parts(own, gpu, host, boundary, base_error), "equals", hardly, limits)
        for rank, part, (own, gpu, host, boundary) in zip(ranks, parts, np.stack(others, axis=1).tolist(), strict=True)
    }


def against_reference(
    now: Sequence[Iterations], before: Sequence[Iterations | None], limits: Limits
) -> dict[int, Growth]:
    """Growth of each rank against its own reference, where that is known."""
    pairs = {
        rank: (rows, earlier)
        for rank, (rows, earlier) in enumerate(zip(now, before, strict=True))
        if earlier is not None and _working(rows) and _working(earlier)
    }
    common, freedom = _common_spread([rows for rows, _ in pairs.values()])
    common_before, freedom_before = _common_spread([earlier for _, earlier in pairs.values()])
    hardly = hardly_by_chance(min(freedom, freedom_before), len(now), limits)
    return {
        rank: _growth(
            rank,
            rows,
            _parts(rows, common, freedom),
            _parts(earlier, common_before, freedom_before),
            "reference",
            hardly,
            limits,
        )
        for rank, (rows, earlier) in pairs.items()
    }
