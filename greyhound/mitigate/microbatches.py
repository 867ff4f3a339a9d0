"""S2: how many micro-batches each data-parallel group gets, so that the slowest ends as early as it can.

Minimise max_i m_i t_i over whole m_i with lower <= m_i <= upper, m_i = 0 (mod multiple) and sum m_i = M (paper, section
5.2, which solves a quadratic form instead: over whole numbers that is another problem, see crosschecks). Exact:
the least makespan T with sum floor(T / t_i) >= M is found by bisection, O(D) numbers a round.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MAX_TOTAL = 1 << 40
MAX_TIME = 1e12
_ROUNDS = 200
_ROUNDING = 1e-12  # m t may come out a hair below what its own division gave


class PlanError(ValueError):
    """No split can satisfy what is asked; names the offending value and what would do."""


@dataclass(frozen=True)
class Split:
    """Micro-batches by group, and the makespan in the unit of the times, beside the even split's."""

    microbatches: tuple[int, ...]
    makespan: float
    even_makespan: float

    @property
    def gain(self) -> float:
        """Even over chosen: 1.0 if there is nothing to gain."""
        return self.even_makespan / self.makespan


@dataclass(frozen=True)
class Request:
    """Seconds a micro-batch by group, the total, and the bounds; checked at creation, PlanError."""

    times: tuple[float, ...]
    total: int
    multiple: int = 1
    upper: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        """Refuse what has no answer."""
        self._check_times()
        groups = len(self.times)
        if not 1 <= self.total <= MAX_TOTAL:
            raise PlanError(f"total {self.total} micro-batches; it must be 1 to {MAX_TOTAL}")
        if self.multiple < 1:
            raise PlanError(f"multiple {self.multiple}; it must be 1 or more")
        if self.total % self.multiple:
            raise PlanError(f"total {self.total} is not divisible by the multiple {self.multiple}")
        if self.total < groups * self.multiple:
            least = groups * self.multiple
            raise PlanError(
                f"{self.total} micro-batches for {groups} groups: each needs {self.multiple}, {least} in all"
            )
        if self.upper is not None:
            self._check_upper(self.upper)

    def _check_times(self) -> None:
        if not self.times:
            raise PlanError("no times: one is needed for each data-parallel group")
        for place, time in enumerate(self.times):
            if not 0 < time <= MAX_TIME:  # nor NaN
                raise PlanError(f"time {place} is {time}; it must be positive, at most {MAX_TIME:g}")

    def _check_upper(self, upper: tuple[int, ...]) -> None:
        if len(upper) != len(self.times):
            raise PlanError(f"{len(upper)} upper bounds for {len(self.times)} groups")
        usable = [bound - bound % self.multiple for bound in upper]
        if min(usable) < self.multiple:
            place = usable.index(min(usable))
            raise PlanError(f"upper bound {upper[place]} of group {place} is below {self.multiple}")
        if sum(usable) < self.total:
            raise PlanError(f"the upper bounds allow {sum(usable)} micro-batches in all, not {self.total}")


def even_split(request: Request) -> tuple[int, ...]:
    """As equal as the multiple allows, the first groups one more; upper bounds aren't looked at."""
    units, groups = request.total // request.multiple, len(request.times)
    share, rest = divmod(units, groups)
    return tuple((share + (place < rest)) * request.multiple for place in range(groups))


def makespan(times: Sequence[float], microbatches: Sequence[int]) -> float:
    """When the slowest group ends."""
    return max(time * count for time, count in zip(times, microbatches, strict=True))


def split(request: Request) -> Split:
    """The best split; among equals the one that leaves the other groups most even."""
    unit_s = np.asarray(request.times, dtype=np.float64) * request.multiple
    units = request.total // request.multiple
    most = np.full(len(unit_s), units, dtype=np.int64)
    if request.upper is not None:
        most = np.minimum(most, np.asarray(request.upper, dtype=np.int64) // request.multiple)
    counts = _at_least_one(unit_s, most, units) * request.multiple
    chosen = tuple(int(count) for count in counts)
    return Split(chosen, makespan(request.times, chosen), makespan(request.times, even_split(request)))


def _at_least_one(unit_s: Floats, most: Ints, units: int) -> Ints:
    """Like `_unbounded`, but groups too slow for any get one, and the others share the rest."""
    counts = np.ones(len(unit_s), dtype=np.int64)
    shared = np.arange(len(unit_s))
    while len(shared):
        found = _unbounded(unit_s[shared], most[shared], units - (len(unit_s) - len(shared)))
        if found.min() >= 1:
            counts[shared] = found
            break
        shared = shared[found >= 1]
    return counts


def _unbounded(unit_s: Floats, most: Ints, units: int) -> Ints:
    """The least makespan without a lower bound: bisect it, then take back what is too much among the latest."""

    def fitting(limit_s: float) -> Ints:
        whole = np.floor(limit_s / unit_s * (1 + _ROUNDING)).astype(np.int64)
        return np.minimum(whole, most)

    low, high = 0.0, float(unit_s.min()) * units
    while fitting(high).sum() < units:
        high *= 2
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (low, middle) if fitting(middle).sum() >= units else (middle, high)
    counts = fitting(high)
    excess = int(counts.sum()) - units
    if excess > 0:
        # All of them end together at `high`: with one less each still fits.
        latest = np.argsort(-counts * unit_s, kind="stable")[:excess]
        counts[latest] -= 1
    return counts
