"""Robust levels of few values, and how far a level may be off by chance."""

import math
from collections.abc import Sequence
from statistics import median

import numpy as np
from scipy.special import stdtrit

from greyhound.localize.limits import DEFAULT, Limits
from greyhound.localize.table import Floats

_TRIMMED = 0.3  # at each end: isolated slow iterations (garbage collection, a checkpoint) are no level
_INEFFICIENCY = 1.1  # standard error of a normal sample's trimmed mean over that of its mean
_MAD_TO_DEVIATION = 1.4826
_OUTLIER = 5.0
_PRIOR_WEIGHT = 2.0  # values that the assumed spread is worth


def level(values: Floats) -> float:
    """The trimmed mean; NaN of nothing."""
    count = len(values)
    if count == 0:
        return math.nan
    cut = int(_TRIMMED * count)
    return math.fsum(sorted(values.tolist())[cut : count - cut]) / (count - 2 * cut)


def spread(values: Floats) -> float:
    """Robust standard deviation of the logs of positive values; NaN of fewer than two."""
    logs = [math.log(value) for value in values.tolist() if value > 0]
    count = len(logs)
    if count < 2:
        return math.nan
    middle = median(logs)
    small_sample = count / (count - 0.8)
    return small_sample * _MAD_TO_DEVIATION * median([abs(value - middle) for value in logs])


def pooled_spread(samples: Sequence[Floats]) -> tuple[float, float]:
    """Standard deviation of the logs of positive values around their sample's median, and its degrees of freedom.

    Isolated outliers count as `_OUTLIER` usual deviations.
    """
    logs = [np.log(values[values > 0]) for values in samples]
    apart = [values - np.median(values) for values in logs if len(values) > 1]
    freedom = float(sum(len(values) - 1 for values in apart))
    if not apart:
        return math.nan, 0.0
    every = np.abs(np.concatenate(apart))
    usual = float(np.median(every[every > 0])) if every.any() else 0.0
    return math.sqrt(float(np.sum(np.minimum(every, _OUTLIER * usual) ** 2)) / freedom), freedom


def with_prior(found: float, freedom: float) -> float:
    """A spread that was estimated with so many degrees of freedom, mixed with the one that trainings usually have."""
    if not freedom > 0 or math.isnan(found):
        return DEFAULT.prior_spread
    return math.sqrt((freedom * found**2 + _PRIOR_WEIGHT * DEFAULT.prior_spread**2) / (freedom + _PRIOR_WEIGHT))


def error(deviation: float, count: int) -> float:
    """Relative standard error of a level of so many values."""
    return _INEFFICIENCY * deviation / math.sqrt(max(count, 1))


def hardly_by_chance(freedom: float, compared: int, limits: Limits) -> float:
    """Standard errors which, in one of so many compared healthy components, chance hardly reaches.

    Student's t: spreads that are estimated from few values make large deviations likelier.
    """
    return float(stdtrit(freedom + _PRIOR_WEIGHT, 1.0 - limits.chance / max(compared, 1)))


def low_median(values: Sequence[float] | Floats) -> float:
    """The median, of an even number the lower middle: components only ever get slower."""
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    return float(ordered[(len(ordered) - 1) // 2]) if len(ordered) else math.nan


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
