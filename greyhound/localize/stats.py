"""Robust levels and errors of few values."""

import math
from collections.abc import Sequence

import numpy as np

from greyhound.localize.limits import DEFAULT
from greyhound.localize.table import Floats

_MAD_TO_DEVIATION = 1.4826
_MEDIAN_INEFFICIENCY = 1.2533  # standard error of a normal sample's median over that of its mean
_PRIOR_WEIGHT = 2.0  # iterations that the assumed spread is worth


def level(values: Floats) -> float:
    """The median; NaN of nothing."""
    return float(np.median(values)) if len(values) else float("nan")


def relative_spread(values: Floats) -> float:
    """Robust standard deviation of log values, mixed with the assumed one where there are few."""
    positive = values[values > 0]
    if len(positive) < 2:
        return DEFAULT.prior_spread
    logs = np.log(positive)
    spread = _MAD_TO_DEVIATION * float(np.median(np.abs(logs - np.median(logs))))
    weight = _PRIOR_WEIGHT / (len(logs) + _PRIOR_WEIGHT)
    return math.sqrt((1 - weight) * spread**2 + weight * DEFAULT.prior_spread**2)


def standard_error(values: Floats) -> float:
    """Relative standard error of the median."""
    return _MEDIAN_INEFFICIENCY * relative_spread(values) / math.sqrt(max(len(values), 1))


def low_median(values: Sequence[float] | Floats) -> float:
    """The median, of an even number the lower middle: components only ever get slower."""
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    return float(ordered[(len(ordered) - 1) // 2]) if len(ordered) else float("nan")


def others_low_median(values: Floats) -> Floats:
    """For each value the low median of all others; NaN where there are none. O(n log n)."""
    count = len(values)
    if count < 2:
        return np.full(count, np.nan)
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    middle = (count - 2) // 2
    base = np.where(np.arange(count) <= middle, ordered[middle + 1], ordered[middle])
    found = np.empty(count)
    found[order] = base
    return found
