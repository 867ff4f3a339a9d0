"""Bayesian online change-point detection (Adams and MacKay 2007, arXiv 0710.3742), pruned to O(1) a step."""

import math

import numpy as np
from numpy.typing import NDArray

_MAX_RUN = 512  # longer runs share the parameters of this one: their predictions no longer differ


class Bocd:
    """Run-length posterior of a series with normal-inverse-gamma prior and constant hazard.

    Meant for log iteration times: a change of scale then only shifts the series, and the prior's mean is the first
    value, so that the answers don't depend on the unit. With a constant hazard the mass on run length 0 is the hazard
    itself at each step, hence the mass on run lengths up to ``recent``.
    """

    def __init__(
        self,
        hazard: float = 1 / 250,
        recent: int = 6,
        prior_spread: float = 0.03,
        prior_runs: float = 0.02,
        prune: float = 1e-4,
    ) -> None:
        """``prior_spread``: expected standard deviation; ``prior_runs``: weight of the prior mean in observations."""
        self._hazard = hazard
        self._recent = recent
        self._prune = prune
        self._alpha = 2.0 + np.arange(_MAX_RUN + 1) / 2
        self._normaliser = np.array(
            [math.lgamma(a + 0.5) - math.lgamma(a) - 0.5 * math.log(2 * math.pi) for a in self._alpha]
        )
        self._beta0, self._kappa0 = 2.0 * prior_spread**2, prior_runs
        self._mean0 = math.nan
        self._run: NDArray[np.int64] = np.zeros(1, dtype=np.int64)
        self._weight = np.ones(1)
        self._mean, self._kappa, self._beta = np.zeros(1), np.full(1, prior_runs), np.full(1, self._beta0)

    @property
    def run_lengths(self) -> int:
        """How many run lengths are carried after pruning."""
        return len(self._run)

    def update(self, x: float) -> float:
        """Take one finite value; the probability that the last change is at most ``recent`` steps back."""
        if math.isnan(self._mean0):
            self._mean0 = x
            self._mean[0] = x
        away = x - self._mean
        alpha = self._alpha[self._run]
        # Student-t predictive with 2 alpha degrees of freedom; spread2 = 2 beta (kappa + 1) / kappa.
        spread2 = 2 * self._beta * (self._kappa + 1) / self._kappa
        log_density = self._normaliser[self._run] - 0.5 * np.log(spread2 / 2)
        log_density -= (alpha + 0.5) * np.log1p(away**2 / spread2)
        joint = self._weight * np.exp(log_density - log_density.max())
        total = joint.sum()
        if total <= 0:  # all carried hypotheses underflowed: the value is news to every one of them
            joint[:], total = 1.0, float(len(joint))
        grown = joint * ((1 - self._hazard) / total)
        self._extend(grown, away)
        return float(self._weight[self._run <= self._recent].sum())

    def _extend(self, grown: NDArray[np.float64], away: NDArray[np.float64]) -> None:
        keep = grown > self._prune
        kappa, away = self._kappa[keep], away[keep]
        weight = np.concatenate(([self._hazard], grown[keep]))
        self._weight = weight / weight.sum()
        self._beta = np.concatenate(([self._beta0], self._beta[keep] + kappa * away**2 / (2 * (kappa + 1))))
        self._mean = np.concatenate(([self._mean0], self._mean[keep] + away / (kappa + 1)))
        self._kappa = np.concatenate(([self._kappa0], kappa + 1))
        self._run = np.concatenate(([0], np.minimum(self._run[keep] + 1, _MAX_RUN)))
        if len(self._run) > 1 and self._run[-2] == _MAX_RUN:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        """Fold the runs at the cap into one, and hold its weight in observations at the cap's."""
        capped = self._run == _MAX_RUN
        last = int(np.flatnonzero(capped)[0])
        self._weight[last] += self._weight[last + 1 :].sum()
        for name in ("_run", "_weight", "_mean", "_kappa", "_beta"):
            setattr(self, name, getattr(self, name)[: last + 1])
