"""What the iteration times of healthy jobs do all the same; each function answers one array of ``length`` entries.

Written down from logs of public runs and from the paper's section 4.2 (garbage collection, allocator misses, ragged
sequence lengths), and on purpose from nothing that a detector does.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

HEALTHY_CEILING = 0.08
"""Drift and small steps of a healthy job together rise by no more than this share above any level it had before."""


@dataclass(frozen=True)
class Roughness:
    """How unquiet a kind of job is: ``spread`` median and most of the noise (log units), ``spikes`` an iteration."""

    spread: float
    most_spread: float
    spikes: float


COMPUTE = Roughness(spread=0.006, most_spread=0.02, spikes=0.02)
COMMUNICATION = Roughness(spread=0.012, most_spread=0.03, spikes=0.03)


def noise(rng: np.random.Generator, length: int, roughness: Roughness) -> Array:
    """Factors around 1: AR(1) in log units with innovations of Student's t, so that tails are heavy."""
    spread = min(roughness.spread * float(np.exp(0.6 * rng.standard_normal())), roughness.most_spread)
    correlation, freedom = rng.uniform(0.0, 0.7), rng.uniform(3.0, 12.0)
    fresh = rng.standard_t(freedom, size=length) * np.sqrt((freedom - 2) / freedom)
    fresh *= spread * np.sqrt(1 - correlation**2)
    out = np.empty(length)
    last = spread * rng.standard_normal()
    for at in range(length):
        last = correlation * last + fresh[at]
        out[at] = last
    return np.exp(np.clip(out, -0.3, 0.6))


def warm_up(rng: np.random.Generator, length: int) -> Array:
    """Extra shares of the first iterations: compilation, allocation, connections; now and then a long mild tail."""
    at = np.arange(length)
    extra = rng.lognormal(1.0, 1.0) * np.exp(-at / rng.uniform(0.3, 1.0))
    if rng.random() < 0.1:
        extra += rng.uniform(0.02, 0.08) * np.exp(-at / rng.uniform(5.0, 40.0))
    return extra


def spikes(rng: np.random.Generator, length: int, roughness: Roughness) -> Array:
    """Extra shares at single iterations, at random, some in clusters of two or three within five iterations."""
    extra = np.zeros(length)
    if rng.random() < 0.35:
        return extra
    starts = np.flatnonzero(rng.random(length) < rng.uniform(0.0, roughness.spikes))
    for start in starts:
        cluster = 1 if rng.random() < 0.8 else int(rng.integers(2, 4))
        at = start + rng.choice(5, size=cluster, replace=False)
        huge = rng.random() < 0.04
        height = rng.uniform(1.0, 5.0) if huge else 0.05 + rng.exponential(0.2)
        extra[at[at < length]] += height * rng.uniform(0.5, 1.5, size=cluster)[at < length]
    return extra


def garbage_collection(rng: np.random.Generator, length: int) -> Array:
    """Extra shares of Python's collector where it is run every so many iterations."""
    extra = np.zeros(length)
    if rng.random() < 0.4:
        every = int(rng.integers(20, 400))
        extra[int(rng.integers(every)) :: every] = rng.uniform(0.05, 0.6)
    return extra


def evaluation(rng: np.random.Generator, length: int) -> Array:
    """Extra shares of evaluation: one long iteration, in some jobs with up to three that find their caches cold."""
    if rng.random() < 0.4:
        return np.zeros(length)
    return _pauses(rng, length, int(rng.integers(80, 500)), (1.0, 15.0), (0.05, 0.5))


def checkpoints(rng: np.random.Generator, length: int) -> Array:
    """Extra shares of checkpoints: a long iteration, in some jobs with up to three beside the write to disk."""
    if rng.random() < 0.4:
        return np.zeros(length)
    return _pauses(rng, length, int(rng.integers(200, 1000)), (2.0, 30.0), (0.1, 0.4))


def _pauses(
    rng: np.random.Generator, length: int, every: int, height: tuple[float, float], after: tuple[float, float]
) -> Array:
    extra = np.zeros(length)
    tail = int(rng.integers(1, 4)) if rng.random() < 0.4 else 0
    tail_height, main_height = rng.uniform(*after), rng.uniform(*height)
    for start in range(int(rng.integers(every // 2, every)), length, every):
        extra[start] += main_height * rng.uniform(0.8, 1.2)
        behind = extra[start + 1 : start + 1 + tail]
        behind += tail_height * rng.uniform(0.7, 1.3, size=len(behind))
    return extra


def optimiser(rng: np.random.Generator, length: int) -> Array:
    """Extra shares of an optimiser that works harder every so many steps (as SOAP does every tenth)."""
    extra = np.zeros(length)
    if rng.random() < 0.12:
        every = int(rng.integers(5, 21))
        extra[int(rng.integers(every)) :: every] = rng.uniform(0.08, 0.4)
    return extra


def drift(rng: np.random.Generator, length: int, most: float) -> Array:
    """Factors that wander slowly by at most ``most`` (a share): straight or as one slow wave."""
    reach = rng.uniform(-most, most)
    at = np.linspace(0.0, 1.0, length)
    if rng.random() < 0.5:
        return 1 + reach * at
    return 1 + reach * np.sin(np.pi * at * rng.uniform(0.5, 2.0)) ** 2


def small_steps(rng: np.random.Generator, length: int, most: float) -> Array:
    """Factors of up to three small steps, lasting or passing, that together never reach more than ``most``."""
    level = np.zeros(length)
    for _ in range(int(rng.integers(0, 4))):
        start = int(rng.integers(60, length))
        lasts = length if rng.random() < 0.4 else int(rng.integers(10, 600))
        level[start : start + lasts] += rng.uniform(0.01, 0.07)
    top = level.max()
    return 1 + (level * (most / top) if top > most else level)


def speed_up(rng: np.random.Generator, length: int) -> Array:
    """Factors of a job that becomes faster for good: a noisy neighbour left."""
    level = np.ones(length)
    if rng.random() < 0.1:
        level[int(rng.integers(100, length)) :] = 1 - rng.uniform(0.03, 0.25)
    return level


def healthy_level(rng: np.random.Generator, length: int) -> Array:
    """Factors of drift, small steps and a lasting speed-up; they rise by HEALTHY_CEILING at most."""
    wander = drift(rng, length, HEALTHY_CEILING / 2) if rng.random() < 0.5 else np.ones(length)
    room = HEALTHY_CEILING - (highest_rise(wander) - 1)
    level = wander + (small_steps(rng, length, room) - 1 if rng.random() < 0.4 else 0.0)
    return np.asarray(level * speed_up(rng, length), dtype=np.float64)


def highest_rise(level: Array) -> float:
    """The largest ratio of a level to one before it."""
    return float((level / np.minimum.accumulate(level)).max())


def pauses(rng: np.random.Generator, length: int, roughness: Roughness) -> Array:
    """Factors (1 or more) of everything that lengthens an iteration now and then."""
    extra = warm_up(rng, length) + spikes(rng, length, roughness) + garbage_collection(rng, length)
    return 1 + extra + evaluation(rng, length) + checkpoints(rng, length) + optimiser(rng, length)
