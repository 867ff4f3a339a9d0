"""Tells a slow level from jitter: the latest iterations against the healthy ones. Pure; all values log over healthy.

The paper verifies by means (section 4.2, BOCD+V), which a single spike moves. A level is consistent in height and
lasts; spikes, pauses and noisy stretches fail at one of the questions below.
"""

import math
from collections.abc import Callable
from statistics import median

import numpy as np
from numpy.typing import NDArray

from greyhound.detect.baseline import Baseline
from greyhound.detect.pauses import Pauses

Array = NDArray[np.float64]

# Windows in which a slow-down is looked for: iterations -> how many of them may be fast.
WINDOWS = {4: 0, 5: 0, 6: 0, 7: 0, 8: 1, 10: 1, 12: 2, 16: 3, 20: 4, 28: 5, 40: 8}
_SHORT = 8  # windows up to this one need a change point, or times far outside the healthy spread
_EVIDENT_DEVIATIONS = 3.0
# Where the calls tell evaluations from iterations, the shortest window is for shifts that no jitter of this rank
# explains: deviations, times the threshold.
_GROSS_LEAST, _GROSS_DEVIATIONS, _GROSS_THRESHOLDS = 4, 6.0, 2.0
# Evaluations and checkpoints are a few iterations high above the rest: the higher, the longer it must last.
_LEAST = ((math.log(1.75), 9), (0.0, 5))
# A job whose first evaluation may be still to come must show one more, if it is as high as those are.
_PAUSE_HEIGHT = math.log(1.4)
# After an iteration far longer still (an evaluation, a checkpoint) some slow ones may follow: cold caches, a disk.
_FAR, _FAR_TIMES, _LEAST_AFTER = math.log(1.75), 3.0, 8
_YOUNG, _YOUNG_LEAST = 256, 6
_LEEWAY_DEVIATIONS = 0.25  # how far below the middle of the shift a slow iteration may lie
# How far from the level an iteration may lie and belong to it, in windows up to a length: share of its height, or
# deviations. Short windows are stricter, since there the heights are all that tells a level from spikes in a row.
_WITHIN = ((6, (0.12, 4.0)), (_SHORT, (0.3, 3.0)), (math.inf, (0.5, 3.0)))
_TIGHT = 0.12  # and how far where one of them is taken on trust
_NEW_ERRORS = 5.0  # standard errors of the window's median by which it must be above what was usual before
_BEYOND_ERRORS = 3.0  # or else above the threshold: a level that crept up to it
_RAISED = 0.35  # share of the threshold that was usual before, from which chance alone reaches it now and then
_BEYOND_RAISED = 3.5  # standard errors above the threshold that are asked then
_LATELY = 16  # iterations right before the window; they count as before, too
_RISING = 0.3  # share of the shift that they must have come up already in a rise or a staircase
_BEYOND_RISING = 1.0  # standard errors that are asked there: it will go on
_CHANCE = 1e-6  # probability of so many slow iterations if they were as rare as before; once in 500 jobs of 2,000
_GRADUAL = 0.6  # share of the shift that was usual before, from which slow iterations are no surprise at all


class Verifier:
    """Looks for a slow level above ``opens_at`` (log) in one rank's iterations."""

    def __init__(
        self, baseline: Baseline, pauses: Pauses, opens_at: float, standard_errors: float, holds_pauses: bool = True
    ) -> None:
        """``standard_errors``: by how many a window's median must exceed the threshold.

        ``holds_pauses``: whether evaluations may be among the iterations; the calls leave them out, a log doesn't.
        """
        self._baseline, self._pauses, self._holds_pauses = baseline, pauses, holds_pauses
        self._opens_at, self._standard_errors = opens_at, standard_errors

    def slow_level(self, recent: list[float], newly_changed: Callable[[], bool]) -> tuple[int, float] | None:
        """Length and median of the shortest window at the end of ``recent`` that is slow beyond doubt.

        ``newly_changed``: whether a change point is among the last few; asked only where it decides.
        """
        before: Array | None = None
        for length, fast_allowed in WINDOWS.items():
            if len(recent) < length:
                return None
            window = recent[-length:]
            middle = median(window)
            sure = self._standard_errors if length <= _SHORT else min(_BEYOND_RISING, self._standard_errors)
            if middle <= self._opens_at + sure * self._error(length):
                continue
            self._complete_first(window, middle)
            evident = length > _SHORT or min(window) >= _EVIDENT_DEVIATIONS * self._baseline.spread
            if not evident and not newly_changed():
                continue
            before = self._baseline.recent_excess() if before is None else before
            usual = max(float(np.median(before)), 0.0)
            far = _since_far(recent[-max(length, _LEAST_AFTER) :], middle)
            if far is not None and far < _LEAST_AFTER:
                continue
            least = self._least(middle) if far is None else max(self._least(middle), _LEAST_AFTER)
            lately = median(recent[-length - _LATELY : -length] or [0.0])
            alike = self._alike(window, middle, usual, fast_allowed)
            if alike >= least and self._is_new(window, middle, usual, lately, before):
                return length, middle
        return None

    def _complete_first(self, window: list[float], middle: float) -> None:
        """The first iteration may have been partly over when the fail-slow began; the rest must be one level then."""
        if self._opens_at < window[0] < middle:
            within = max(_TIGHT * middle, _EVIDENT_DEVIATIONS * self._baseline.spread)
            if all(abs(excess - middle) <= within for excess in window[1:]):
                window[0] = middle

    def _error(self, length: int) -> float:
        return math.hypot(self._baseline.median_error(length), self._baseline.level_error())

    def _alike(self, window: list[float], middle: float, usual: float, fast_allowed: int) -> int:
        """How many iterations of a window are about as slow; 0 if not nearly all are slow."""
        spread, short = self._baseline.spread, len(window) <= _SHORT
        ordered = sorted(window)
        gradual = not short and usual > _GRADUAL * middle
        floor = (middle + (0.0 if gradual else usual)) / 2 - _LEEWAY_DEVIATIONS * spread
        if ordered[fast_allowed] <= floor or ordered[len(window) // 3] <= self._opens_at:
            return 0
        share, deviations = next(value for length, value in _WITHIN if len(window) <= length)
        within = max(share * middle, deviations * spread)
        return sum(abs(excess - middle) <= within for excess in window)

    def _least(self, middle: float) -> int:
        """How many iterations must be alike: more than a pause of this height has, and than this job's had."""
        if not self._holds_pauses:
            gross = middle > max(_GROSS_DEVIATIONS * self._baseline.spread, _GROSS_THRESHOLDS * self._opens_at)
            return max(_GROSS_LEAST if gross else _LEAST[-1][1], self._pauses.longest_like(middle) + 2)
        least = next(count for height, count in _LEAST if middle > height)
        if self._baseline.learnt < _YOUNG and middle > _PAUSE_HEIGHT:
            least = max(least, _YOUNG_LEAST)
        return max(least, self._pauses.longest_like(middle) + 2)

    def _is_new(self, window: list[float], middle: float, usual: float, lately: float, before: Array) -> bool:
        """Whether the window stands out against what the job did ``before``, in height and in how often it is slow."""
        length = len(window)
        risen = middle - usual > _NEW_ERRORS * self._baseline.median_error(length)
        beyond, error = middle - self._opens_at, self._error(length)
        raised = max(usual, lately) > _RAISED * self._opens_at
        if beyond <= _BEYOND_ERRORS * error and not risen:
            return False
        rising = length > _SHORT and lately - usual > _RISING * (middle - usual)
        sure = (_BEYOND_RISING if rising else _BEYOND_RAISED) if raised else self._standard_errors
        if beyond <= sure * error:
            return False
        if length > _SHORT and usual > _GRADUAL * middle:
            return True
        floor = (middle + usual) / 2
        rate = (float(np.count_nonzero(before > floor)) + 0.5) / (len(before) + 1)
        return at_least(sum(excess > floor for excess in window), length, rate) < _CHANCE


def at_least(successes: int, trials: int, probability: float) -> float:
    """The probability of so many successes or more in independent trials."""
    return math.fsum(
        math.comb(trials, k) * probability**k * (1 - probability) ** (trials - k) for k in range(successes, trials + 1)
    )


def _since_far(recent: list[float], middle: float) -> int | None:
    """Iterations since one far longer than the level ``middle`` (an evaluation, a checkpoint); None if there's none.

    Slow ones behind it (cold caches, a busy disk) prove nothing before they are many.
    """
    limit = max(_FAR, _FAR_TIMES * middle)
    return next((behind for behind, excess in enumerate(reversed(recent)) if excess > limit), None)
