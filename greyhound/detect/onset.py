"""Where a fail-slow began, looked up in the kept history once it is certain that there is one. Pure; excess in logs."""

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

HISTORY = 256  # iterations in which a slow rise is looked for
_NEAR = 64  # iterations in which two fast ones in a row are looked for
_FAST_DEVIATIONS = 4.0  # an iteration so far below the slow level is none of it; two in a row end what was before
_CROSSES = 0.85  # share of the threshold that lies between the two sides; a rise crosses it a little before
_LEAST_BELOW = 12  # iterations of a level that may prove to be below the threshold
_BELOW_ERRORS = 5.0  # and standard errors that it must be below
_TIE = 1e-9  # log units: sums that differ by less are equal but for rounding, which the unit of time decides


def onset(excess: list[float], least: int, middle: float, opens_at: float, spread: float, error: float) -> int:
    """Place in ``excess`` where the level ``middle`` began that has lasted for ``least`` iterations or more.

    ``spread``: standard deviation of a healthy iteration, ``error``: standard error of a median of one. No shape is
    assumed: step, rise and staircase begin where they come to stay above the threshold.
    """
    last = len(excess) - least
    earliest = _after_fast(excess, last, middle, spread)
    limit = _CROSSES * opens_at
    # A spike counts no more than a healthy iteration does.
    values = np.clip(excess, 0.0, 2 * limit)
    start = earliest + stays_above(values[earliest:], limit, last - earliest)
    return _without_lower(values, start, last, opens_at, error)


def _after_fast(excess: list[float], last: int, middle: float, spread: float) -> int:
    """The iteration after the last two in a row before ``last`` that the slow level can't have made."""
    limit = min(middle / 2, middle - _FAST_DEVIATIONS * spread)
    for at in range(last, max(last - _NEAR, 1), -1):
        if excess[at - 1] < limit and excess[at - 2] < limit:
            return at
    return 0


def stays_above(values: Array, limit: float, last: int) -> int:
    """Where the end of ``values`` begins that is most above ``limit`` (their sum over it is largest); ``last`` at most.

    The most likely change between two levels on either side of the limit (CUSUM); of equal ones the last.
    """
    total = np.cumsum((values - limit)[::-1])[::-1][: last + 1]
    return int(np.flatnonzero(total >= total.max() - _TIE)[-1])


def _without_lower(values: Array, start: int, last: int, opens_at: float, error: float) -> int:
    """``start``, or the next change of level where what comes before it is below the threshold for certain."""
    while start < last:
        part = split(values[start:])
        below = opens_at - float(np.median(values[start : start + max(part, 1)]))
        if part < _LEAST_BELOW or start + part > last or below <= _BELOW_ERRORS * error / math.sqrt(part):
            break
        start += part
    return start


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
