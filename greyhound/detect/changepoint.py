"""Bayesian online change-point detection (Adams and MacKay 2007, arXiv 0710.3742), pruned to O(1) a step."""

import math
from collections import deque
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_MAX_RUN = 512  # longer runs share the parameters of this one: their predictions no longer differ
_ROOM = 48  # run lengths carried before the light ones are dropped: numpy's cost a call hardly grows up to here
_LIGHT = 1e-4  # weight from which on a run length is carried: forty times below the hazard, so it decides nothing
_ENOUGH = 64  # latest values that tell whether there was a change among the last few
_KEPT = 32  # at most so many stay then, so that dropping them happens every 16 steps at most


class Bocd:
    """Run-length posterior of a series with normal-inverse-gamma prior and constant hazard.

    Meant for log iteration times: a change of scale then only shifts the series, and the prior's mean is the first
    value, so that the answers don't depend on the unit. With a constant hazard the mass on run length 0 is the hazard
    itself at each step, hence the mass on run lengths up to ``recent``.
    """

    def __init__(
        self, hazard: float = 1 / 250, recent: int = 6, prior_spread: float = 0.03, prior_runs: float = 0.02
    ) -> None:
        """``prior_spread``: expected standard deviation; ``prior_runs``: weight of the prior mean in observations."""
        self._hazard, self._recent = hazard, recent
        self._shrink, self._power, self._step, self._normaliser = _tables(prior_runs)
        self._beta0 = 2.0 * prior_spread**2
        self._mean0 = math.nan
        # One entry a run length, the longest first; beta also as logarithm, which the density needs.
        self._count = 1
        self._run = np.zeros(_ROOM, dtype=np.intp)
        self._weight, self._mean = np.ones(_ROOM), np.zeros(_ROOM)
        self._beta, self._log_beta = np.full(_ROOM, self._beta0), np.full(_ROOM, math.log(self._beta0))

    @property
    def run_lengths(self) -> int:
        """How many run lengths are carried."""
        return self._count

    def update(self, x: float) -> float:
        """Take one finite value; the probability that the last change is at most ``recent`` steps back."""
        if math.isnan(self._mean0):
            self._mean0 = x
            self._mean[:] = x
        held = slice(self._count)
        run, mean, beta, log_beta = self._run[held], self._mean[held], self._beta[held], self._log_beta[held]
        away = x - mean
        # Student-t predictive with 2 alpha degrees of freedom, in which beta' = beta (1 + surprise).
        surprise = away * away
        surprise *= self._shrink[run]
        surprise /= beta
        growth = np.log1p(surprise)
        log_density = self._normaliser[run]
        log_density -= 0.5 * log_beta
        log_density -= self._power[run] * growth
        log_density -= np.maximum.reduce(log_density)
        weight = self._weight[held]
        weight *= np.exp(log_density, out=log_density)
        mean += away * self._step[run]
        surprise += 1
        beta *= surprise
        log_beta += growth
        return self._grow(weight)

    def _grow(self, weight: Array) -> float:
        """Every run grows by one, or ends with the hazard; the mass on the recent ones."""
        total = float(np.add.reduce(weight))
        if total <= 0:  # all carried hypotheses underflowed: the value is news to every one of them
            weight[:], total = 1.0, float(len(weight))
        weight *= (1 - self._hazard) / total
        run = self._run[: self._count]
        run += 1
        if run[0] > _MAX_RUN:
            self._fold_longest(run)
        if self._count == _ROOM:
            self._drop_light()
        at = self._count
        self._run[at], self._weight[at], self._mean[at] = 0, self._hazard, self._mean0
        self._beta[at], self._log_beta[at] = self._beta0, math.log(self._beta0)
        self._count += 1
        # The longest come first and each step adds one at the end, so the recent ones are among the last.
        first = max(0, self._count - self._recent - 1)
        while self._run[first] > self._recent:
            first += 1
        return float(np.add.reduce(self._weight[first : self._count]))

    def _fold_longest(self, run: NDArray[np.intp]) -> None:
        """Hold the longest run's parameters at the cap, and fold the next into it when that arrives there, too."""
        run[0] = _MAX_RUN
        if len(run) > 1 and run[1] == _MAX_RUN:
            self._weight[1] += self._weight[0]
            self._select(np.arange(1, self._count))

    def _drop_light(self) -> None:
        weight = self._weight[: self._count]
        keep = np.flatnonzero(weight > _LIGHT)
        if len(keep) > _KEPT:
            keep = np.sort(np.argpartition(weight, -_KEPT)[-_KEPT:])
        self._select(keep)
        self._weight[: self._count] *= (1 - self._hazard) / self._weight[: self._count].sum()

    def _select(self, keep: NDArray[np.intp]) -> None:
        for values in (self._run, self._weight, self._mean, self._beta, self._log_beta):
            values[: len(keep)] = values[keep]
        self._count = len(keep)


@lru_cache(maxsize=8)
def _tables(prior_runs: float) -> tuple[Array, Array, Array, Array]:
    """What depends on the run length alone: kappa = prior_runs + run, alpha = 2 + run / 2."""
    run = np.arange(_MAX_RUN + 1)
    kappa, alpha = prior_runs + run, 2.0 + run / 2
    shrink = kappa / (2 * (kappa + 1))
    gammas = np.array([math.lgamma(a + 0.5) - math.lgamma(a) for a in alpha])
    normaliser = gammas - 0.5 * math.log(2 * math.pi) + 0.5 * np.log(2 * shrink)
    return shrink, alpha + 0.5, 1 / (kappa + 1), normaliser


class LatestChange:
    """The same question for whoever asks it rarely: values are kept, and worked out when it is asked.

    Answers from the last ``_ENOUGH`` values at most, whatever was before; so a step never costs more than ``Bocd``'s,
    and next to nothing while nobody asks.
    """

    def __init__(self) -> None:
        """Before any value."""
        self._waiting: deque[float] = deque(maxlen=_ENOUGH)
        self._worked_out: Bocd | None = None
        self._probability = 0.0

    def add(self, x: float) -> None:
        """Take one finite value."""
        if len(self._waiting) == _ENOUGH:
            self._worked_out = None  # values between what it knows and what waits are gone
        self._waiting.append(x)

    def probability(self) -> float:
        """As ``Bocd.update`` for the last value; 0 before any."""
        if self._worked_out is None:
            self._worked_out = Bocd()
        for x in self._waiting:
            self._probability = self._worked_out.update(x)
        self._waiting.clear()
        return self._probability
