"""The difference between two ways of doing the same work, from pairs of measurements taken one after the other."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

LEAST_PAIRS = 3


@dataclass(frozen=True)
class Difference:
    """Mean of ``b / a - 1`` over pairs, as a share (0.01 = b takes 1 % longer), with its confidence interval."""

    mean: float
    low: float
    high: float
    pairs: int

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves out zero."""
        return not self.low <= 0.0 <= self.high


def difference(a_s: Sequence[float], b_s: Sequence[float], confidence: float = 0.95) -> Difference:
    """Student's t interval of the pairwise relative difference; ``a_s`` and ``b_s`` are seconds, pair by pair.

    Pairs cancel a drift that is slow against one pair. ValueError for fewer than LEAST_PAIRS pairs, for unequal
    lengths, and for times that are not positive and finite.
    """
    a, b = np.asarray(a_s, dtype=float), np.asarray(b_s, dtype=float)
    if a.shape != b.shape or a.ndim != 1:
        raise ValueError(f"{a.size} measurements against {b.size}; pairs are needed")
    if a.size < LEAST_PAIRS:
        raise ValueError(f"{a.size} pairs of measurements; at least {LEAST_PAIRS} are needed")
    if not (np.isfinite(a).all() and np.isfinite(b).all() and (a > 0).all() and (b > 0).all()):
        raise ValueError("times must be positive and finite")
    shares = b / a - 1
    mean = float(shares.mean())
    error = float(shares.std(ddof=1)) / math.sqrt(a.size)
    reach = float(stats.t.ppf((1 + confidence) / 2, a.size - 1)) * error
    return Difference(mean, mean - reach, mean + reach, int(a.size))
