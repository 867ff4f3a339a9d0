"""Where a fail-slow began, looked up in the kept history once it is certain that there is one. Pure; excess in logs."""

import math
from statistics import median

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

HISTORY = 256  # iterations in which a slow rise is looked for
_NEAR = 64  # iterations in which a step is placed: the longest window and what was before it
_LEAST_SLOW = 4  # iterations that an onset leaves at least: no window is shorter
_RUN = 12  # iterations, at most, whose median is over the threshold from the onset on
_FAST_DEVIATIONS = 4.0  # an iteration so far below the slow level is none of it; two in a row end what was before
_GRID = 4  # iterations between the places tried for the beginning of a rise
_LEAST_RISE = 16  # iterations; what is quicker is a step
_BETTER = 0.8  # share of the step's squared error that a rise must stay below
_CROSSES = 0.85  # share of the threshold where a rise counts as begun: its fit is some iterations wrong either way
_TIE = 1e-9  # log units: costs that differ by less are equal but for rounding, which the unit of time decides


def onset(excess: list[float], length: int, middle: float, opens_at: float, spread: float) -> int:
    """Place in ``excess`` where the level ``middle`` of the last ``length`` iterations began.

    The change point, where the level came at once; where it rose slowly, about where the rise crossed ``opens_at``.
    """
    last = len(excess) - min(length, _LEAST_SLOW)
    skipped = max(len(excess) - _NEAR, 0)
    start = skipped + split(np.array(excess[skipped:]))
    earliest = _after_fast(excess, last, middle, spread)
    start = max(start, earliest)
    crossed = _CROSSES * opens_at
    rise = rise_crosses(np.array(excess), start, middle, crossed)
    if rise is not None and rise >= earliest:
        return min(rise, last)
    while start < last and median(excess[start : start + _RUN]) < crossed:
        start += 1
    return min(start, last)


def _after_fast(excess: list[float], last: int, middle: float, spread: float) -> int:
    """The iteration after the last two in a row before ``last`` that the slow level can't have made."""
    limit = min(middle / 2, middle - _FAST_DEVIATIONS * spread)
    for at in range(last, max(last - _NEAR, 1), -1):
        if excess[at - 1] < limit and excess[at - 2] < limit:
            return at
    return 0


def rise_crosses(excess: Array, step: int, middle: float, level: float) -> int | None:
    """Where a line that rises to the end of ``excess`` crosses ``level``; None if a step at ``step`` fits as well.

    Least squares of a level and a step against a level and a rise from it; what lies far off counts as just outside.
    """
    if len(excess) < 2 * _LEAST_RISE:
        return None
    values = np.clip(excess, -middle, 1.5 * middle)
    parts = (values[:step], values[step:])
    step_error = sum(float(((part - part.mean()) ** 2).sum()) for part in parts if len(part))
    fits = [_hinge(values, at) for at in range(0, len(values) - _LEAST_RISE, _GRID)]
    error, at, foot, slope = min(fits)
    if error >= _BETTER * step_error or slope <= 0 or foot >= level:
        return None
    return at + math.ceil((level - foot) / slope)


def _hinge(values: Array, at: int) -> tuple[float, int, float, float]:
    """Squared error, place, foot and slope of the best level that rises evenly from ``at`` on."""
    over = np.maximum(np.arange(len(values)) - at, 0.0)
    centred = over - over.mean()
    slope = float(centred @ values) / float(centred @ centred)
    foot = float(values.mean()) - slope * float(over.mean())
    away = values - foot - slope * over
    return float(away @ away), at, foot, slope


def split(values: Array, least: int = 3) -> int:
    """Where ``values`` change level: the start of the second part, at least ``least`` long, so that the medians of
    both parts fit best (least absolute deviations, which spikes don't move). 0 if one level fits as well."""
    best, where = _deviation(values), 0
    for at in range(least, len(values) - least + 1):
        cost = _deviation(values[:at]) + _deviation(values[at:])
        if cost < best - _TIE:
            best, where = cost, at
    return where


def _deviation(values: Array) -> float:
    ordered = np.sort(values)
    half = len(ordered) // 2
    return float(ordered[len(ordered) - half :].sum() - ordered[:half].sum())
