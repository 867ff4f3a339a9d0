"""Labelled series of iteration times in the proportions of the paper's Tables 3 and 4, reproducible by their seed.

392 compute series (one node: 386 healthy, 4 CPU contention, 2 GPU degradation) and 107 communication series (four
nodes: 64 healthy, 1 CPU contention, 42 network congestion), with its iteration times (about 0.48 s and 1.75 s), mean
durations of a fail-slow (10 and 24 minutes, from under a minute to 110), severities (compute mild, communication
severe) and so about its loss (11.8 % and 15.5 % of the job's time, as the mean over the slow jobs). Added is what
real jobs do besides (``jitter``). Jobs of the paper have 10,000 iterations; a healthy series here is cut to about
2,000, a slow one is as long as its fail-slow and healthy iterations before and after it take.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from greyhound.testdata import faults, jitter
from greyhound.testdata.faults import Severity, Shape, Truth

Array = NDArray[np.float64]

_HEALTHY_ITERATIONS = (1600, 2401)
_BEFORE, _BETWEEN, _AFTER = (120, 900), (150, 500), (150, 600)
_LEAST_S, _MOST_S = 25.0, 110 * 60.0
_DURATION_SIGMA = 1.1
_LONGEST = 8000
_SLOW_SERIES_DRIFT = 0.02


@dataclass(frozen=True)
class Series:
    """One job: ``seconds`` of its iterations 0, 1, 2...; ``truth`` its fail-slows in order, none in a healthy job.

    ``kind`` is compute or communication, ``cause`` healthy, cpu, gpu or congestion, ``shape`` names the levels.
    """

    name: str
    kind: str
    cause: str
    shape: str
    seconds: Array
    truth: tuple[Truth, ...]
    healthy_s: float

    @property
    def jct_slowdown(self) -> float:
        """The share of healthy time that its fail-slows added to the job."""
        lost = sum((row.slowdown - 1) * ((row.end or len(self.seconds)) - row.onset) for row in self.truth)
        healthy = len(self.seconds)
        return lost / healthy


@dataclass(frozen=True)
class _Kind:
    """What distinguishes the two sets: iteration times (s), noise, and fail-slows (minutes, slow-downs)."""

    name: str
    iteration_s: tuple[float, float]
    roughness: jitter.Roughness
    duration_s: float
    severity: Severity
    causes: tuple[tuple[str, str], ...]
    healthy: int


_COMPUTE = _Kind(
    "compute",
    (0.42, 0.54),
    jitter.COMPUTE,
    10 * 60.0,
    Severity(1.12, 0.09, 1.6),
    (("cpu", "twice"), ("cpu", "step"), ("cpu", "step"), ("cpu", "ramp"), ("gpu", "step"), ("gpu", "ramp")),
    386,
)
_COMMUNICATION = _Kind(
    "communication",
    (1.3, 2.2),
    jitter.COMMUNICATION,
    24 * 60.0,
    Severity(1.12, 0.22, 5.0),
    (
        ("cpu", "step"),
        *[("congestion", "step")] * 26,
        *[("congestion", "worsening")] * 4,
        *[("congestion", "staircase")] * 4,
        *[("congestion", "ramp")] * 4,
        *[("congestion", "twice")] * 4,
    ),
    64,
)
_SHAPES: dict[str, tuple[Shape, ...]] = {
    "step": (faults.step,),
    "ramp": (faults.ramp,),
    "staircase": (faults.staircase,),
    "worsening": (faults.worsening,),
    "twice": (faults.step, faults.step),
}


def compute_series(seed: int) -> Iterator[Series]:
    """The 392 series of one-node jobs."""
    return _series(_COMPUTE, seed)


def communication_series(seed: int) -> Iterator[Series]:
    """The 107 series of four-node jobs."""
    return _series(_COMMUNICATION, seed)


def labelled_set(seed: int) -> Iterator[Series]:
    """All 499."""
    yield from compute_series(seed)
    yield from communication_series(seed)


def _series(kind: _Kind, seed: int) -> Iterator[Series]:
    for index, (cause, shape) in enumerate((*kind.causes, *[("healthy", "none")] * kind.healthy)):
        rng = np.random.default_rng([seed, 0 if kind is _COMPUTE else 1, index])
        name = f"{kind.name}-{seed}-{index:03d}"
        yield _healthy(kind, rng, name) if cause == "healthy" else _slow(kind, rng, name, cause, shape)


def _healthy(kind: _Kind, rng: np.random.Generator, name: str) -> Series:
    length = int(rng.integers(*_HEALTHY_ITERATIONS))
    healthy_s = rng.uniform(*kind.iteration_s)
    seconds = healthy_s * jitter.healthy_level(rng, length) * _unquiet(kind, rng, length)
    return Series(name, kind.name, "healthy", "none", seconds, (), healthy_s)


def _slow(kind: _Kind, rng: np.random.Generator, name: str, cause: str, shape: str) -> Series:
    healthy_s = rng.uniform(*kind.iteration_s)
    level, truth = _fault_level(kind, rng, healthy_s, _SHAPES[shape])
    length = len(level)
    seconds = healthy_s * level * jitter.drift(rng, length, _SLOW_SERIES_DRIFT) * _unquiet(kind, rng, length)
    return Series(name, kind.name, cause, shape, seconds, tuple(truth), healthy_s)


def _unquiet(kind: _Kind, rng: np.random.Generator, length: int) -> Array:
    return jitter.noise(rng, length, kind.roughness) * jitter.pauses(rng, length, kind.roughness)


def _fault_level(
    kind: _Kind, rng: np.random.Generator, healthy_s: float, shapes: tuple[Shape, ...]
) -> tuple[Array, list[Truth]]:
    """Levels of a whole job: healthy, a fail-slow of each shape in turn with healthy iterations between, healthy."""
    parts = [np.ones(int(rng.integers(*_BEFORE)))]
    truth: list[Truth] = []
    for shape in shapes:
        if truth:
            parts.append(np.ones(int(rng.integers(*_BETWEEN))))
        slow = shape(rng, _iterations(kind, rng, healthy_s), kind.severity.draw(rng))
        truth.append(faults.truth_of(slow, sum(len(part) for part in parts)))
        parts.append(slow)
    if rng.random() < 0.15:  # still slow when the job ends
        truth[-1] = replace(truth[-1], end=None)
    else:
        parts.append(np.ones(int(rng.integers(*_AFTER))))
    return np.concatenate(parts), truth


def _iterations(kind: _Kind, rng: np.random.Generator, healthy_s: float) -> int:
    """How many iterations a fail-slow lasts: log-normal in time, with the kind's mean."""
    median_s = kind.duration_s / np.exp(_DURATION_SIGMA**2 / 2)
    lasts_s = float(np.clip(median_s * np.exp(_DURATION_SIGMA * rng.standard_normal()), _LEAST_S, _MOST_S))
    return min(int(lasts_s / healthy_s), _LONGEST)
