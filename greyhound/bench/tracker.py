"""What following one rank's iteration times costs: python -m greyhound.bench.tracker."""

import math
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from greyhound.bench.output import Measured, report
from greyhound.detect.changepoint import Bocd
from greyhound.detect.tracker import Tracker

_STEPS = 20_000
_SHORT, _LONG = 2_000, 18_000  # early and late in one history, where a step's cost is compared
_RANKS = 512
_UNPRUNED_STEPS = 10_000


class UnprunedBocd:
    """Change points by the book: every run length since the beginning is carried, so a step costs O(history).

    Priors and hazard of ``Bocd``; Adams and MacKay 2007, algorithm 1, in numpy.
    """

    def __init__(self, hazard: float = 1 / 250, recent: int = 6, prior_spread: float = 0.03) -> None:
        """As ``Bocd``."""
        self._hazard, self._recent = hazard, recent
        self._first = math.nan
        self._start = (0.02, 2.0, 2.0 * prior_spread**2)
        self._weight = np.ones(1)
        self._mean = np.zeros(1)
        self._kappa, self._alpha, self._beta = (np.full(1, value) for value in self._start)
        self._gammas = np.array([_gammas(self._start[1])])

    def update(self, x: float) -> float:
        """Take one value; the probability that the last change is at most ``recent`` steps back."""
        if math.isnan(self._first):
            self._first = x
            self._mean[0] = x
        joint = self._weight * self._density(x)
        away = x - self._mean
        grown = np.concatenate(([self._hazard * joint.sum()], (1 - self._hazard) * joint))
        beta = self._beta + self._kappa * away**2 / (2 * (self._kappa + 1))
        self._mean = np.concatenate(([self._first], self._mean + away / (self._kappa + 1)))
        self._kappa = np.concatenate(([self._start[0]], self._kappa + 1))
        self._alpha = np.concatenate(([self._start[1]], self._alpha + 0.5))
        self._gammas = np.append(self._gammas, _gammas(float(self._alpha[-1])))
        self._beta = np.concatenate(([self._start[2]], beta))
        self._weight = grown / grown.sum()
        return float(self._weight[: self._recent + 1].sum())

    def _density(self, x: float) -> NDArray[np.float64]:
        spread2 = 2 * self._beta * (self._kappa + 1) / self._kappa
        log_density = self._gammas - 0.5 * np.log(math.pi * spread2)
        log_density -= (self._alpha + 0.5) * np.log1p((x - self._mean) ** 2 / spread2)
        return np.asarray(np.exp(log_density))


def _gammas(alpha: float) -> float:
    return math.lgamma(alpha + 0.5) - math.lgamma(alpha)


def iteration_times(count: int) -> NDArray[np.float64]:
    """Healthy iterations of half a second with jitter, rare spikes, and one fail-slow in the middle."""
    rng = np.random.default_rng(1)
    seconds = 0.5 * np.exp(rng.normal(0, 0.01, count))
    seconds[rng.random(count) < 0.01] *= 1.5
    seconds[count // 2 : count // 2 + 500] *= 1.3
    return seconds


def step_costs_us(update: Callable[[int, float], object], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Microseconds of each call of ``update(number, value)``."""
    costs = np.empty(len(values))
    for number, value in enumerate(values.tolist()):
        begin = time.perf_counter_ns()
        update(number, value)
        costs[number] = time.perf_counter_ns() - begin
    return costs / 1e3


def measure() -> list[Measured]:
    """A step's cost, how it depends on history, what 512 ranks take, and the same beside a BOCD that doesn't prune."""
    seconds = iteration_times(_STEPS)
    begin_s = time.process_time()
    costs = step_costs_us(Tracker().update, seconds)
    mean_us = (time.process_time() - begin_s) * 1e6 / len(seconds)  # of this process, whatever else the machine does
    early, late = np.median(costs[_SHORT - 1000 : _SHORT]), np.median(costs[_LONG : _LONG + 1000])
    logs = np.log(seconds[:_UNPRUNED_STEPS])
    pruned, unpruned = Bocd(), UnprunedBocd()
    pruned_us = step_costs_us(lambda _, x: pruned.update(x), logs)[-500:]
    unpruned_us = step_costs_us(lambda _, x: unpruned.update(x), logs)[-500:]
    whole = float(np.median(unpruned_us) / np.median(costs))
    return [
        Measured("tracker step, median", float(np.median(costs)), "us", 50, "less"),
        Measured("tracker step late in a long history over early", float(late / early), "times", 1.5, "less"),
        Measured(f"{_RANKS} ranks at 1 iteration/s", mean_us * _RANKS / 1e4, "% of a core", 5, "less"),
        Measured(
            "BOCD that doesn't prune, after 10,000 iterations, over ours",
            float(np.median(unpruned_us) / np.median(pruned_us)),
            "times",
            5,
            "more",
        ),
        Measured("the same over a whole tracker step", whole, "times", 2, "more"),
    ]


if __name__ == "__main__":
    report("tracker", measure())
