"""Levels of fail-slows: how much longer than healthy each iteration of a job takes while a component is slow."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

BAR = 1.10
"""From this level on it is a fail-slow, by the paper's bar; onset and end are where it is crossed."""


@dataclass(frozen=True)
class Truth:
    """A fail-slow as it was made: slow from iteration ``onset`` to before ``end`` (None: to the end of the series).

    ``slowdown`` is the median level between the two, relative to healthy. A ramp or a staircase begins before it
    reaches the bar: at ``begin``, which is ``onset`` for a step.
    """

    begin: int
    onset: int
    end: int | None
    slowdown: float


@dataclass(frozen=True)
class Severity:
    """Slow-downs above 1 are ``least`` - 1 plus an exponential of mean ``mean``, at most ``most`` - 1."""

    least: float
    mean: float
    most: float

    def draw(self, rng: np.random.Generator) -> float:
        """One slow-down, relative to healthy."""
        return min(self.least + float(rng.exponential(self.mean)), self.most)


Shape = Callable[[np.random.Generator, int, float], Array]
"""(rng, iterations, slow-down) -> levels of these iterations."""


def step(rng: np.random.Generator, length: int, slowdown: float) -> Array:
    """At once, but for a first iteration that was partly over when it began."""
    level = np.full(length, slowdown)
    level[0] = 1 + (slowdown - 1) * rng.random()
    return level


def ramp(rng: np.random.Generator, length: int, slowdown: float) -> Array:
    """Rises evenly over 30 to 200 iterations (a GPU heats up, a cache fills), then stays."""
    rise = min(int(rng.integers(30, 201)), length // 2)
    level = np.full(length, slowdown)
    level[:rise] = np.linspace(1.0, slowdown, rise)
    return level


def staircase(rng: np.random.Generator, length: int, slowdown: float) -> Array:
    """Rises in steps of less than 10 % each, evenly apart: what the paper's BOCD+V missed."""
    slowdown = max(slowdown, 1.15)
    steps = int(np.ceil(np.log(slowdown) / np.log(1.07)))
    apart = min(int(rng.integers(20, 120)), length // (2 * steps))
    at = np.minimum(np.arange(length) // max(apart, 1) + 1, steps)
    return np.asarray(slowdown ** (at / steps), dtype=np.float64)


def worsening(rng: np.random.Generator, length: int, slowdown: float) -> Array:
    """A second level above the first (the paper's case 3: 0.57 -> 0.41 -> 0.31 iterations/s).

    One of the two prevails: the median of two levels of equal length, the label's slow-down, could be either.
    """
    level = step(rng, length, slowdown)
    first = rng.uniform(0.3, 0.4) if rng.random() < 0.5 else rng.uniform(0.6, 0.7)
    level[int(length * first) :] = slowdown * rng.uniform(1.15, 1.4)
    return level


def truth_of(level: Array, start: int) -> Truth:
    """What one fail-slow's levels amount to, if they begin at iteration ``start`` and healthy ones follow."""
    slow = np.flatnonzero(level >= BAR)
    first, last = int(slow[0]), int(slow[-1])
    return Truth(start, start + first, start + last + 1, float(np.median(level[first : last + 1])))
