"""The healthy iteration time: learnt during warm-up, then frozen but for a slow drift."""

import math
from collections import deque
from itertools import pairwise
from statistics import median

_POOL = 64  # healthy iterations from which level and spread are known
_PENDING = 8  # iterations held back until it is clear that no episode began with them
_DRIFT_UP = 2e-5  # log units an iteration: 2 % in 1,000, so that a staircase of small steps still adds up
_DRIFT_DOWN = 0.02  # share of the gap to a faster level that is closed in an iteration
_YOUNG = 32  # iterations learnt below which the level is provisional
_REFRESH = 8  # iterations between estimates
_MAD_TO_DEVIATION = 1.4826
_MEDIAN_INEFFICIENCY = 1.2533  # standard error of a normal sample's median over that of its mean


class Baseline:
    """Level and spread of healthy iterations, in log seconds; scaling all times shifts the level and nothing else."""

    def __init__(self, warmup: int, ceiling: float) -> None:
        """``warmup`` iterations are awaited; samples more than ``ceiling`` (log) above the level are not learnt."""
        self._warmup = max(warmup, 3)
        self._ceiling = ceiling
        self._first: list[float] = []
        self._pool: deque[float] = deque(maxlen=_POOL)
        self._pending: deque[float] = deque()
        self._level: float | None = None
        self._learnt = 0
        self._spread = 0.0
        self._correlation = 0.0

    @property
    def healthy_s(self) -> float | None:
        """Seconds of a healthy iteration; None during warm-up."""
        return None if self._level is None else math.exp(self._level)

    @property
    def spread(self) -> float:
        """Robust standard deviation of log seconds around the level."""
        return self._spread

    def median_error(self, count: int) -> float:
        """Standard error of the median of ``count`` iterations; neighbours resemble each other (AR(1))."""
        inflation = math.sqrt((1 + self._correlation) / (1 - self._correlation))
        return _MEDIAN_INEFFICIENCY * self._spread * inflation / math.sqrt(count)

    def warm_up(self, seconds: float) -> None:
        """Take an iteration of the warm-up; the first ones compile, allocate and connect."""
        self._first.append(math.log(seconds))
        if len(self._first) < self._warmup:
            return
        self._pool.extend(self._first[1:])
        self._first.clear()
        self._level = median(self._pool)
        self._estimate()

    def learn(self, seconds: float) -> None:
        """Take an iteration after the warm-up that isn't part of an episode."""
        self._pending.append(math.log(seconds))
        if len(self._pending) <= _PENDING:
            return
        assert self._level is not None
        sample = self._pending.popleft()
        if sample - self._level > self._ceiling:
            return
        self._pool.append(sample)
        self._learnt += 1
        if self._learnt % _REFRESH == 0:
            self._estimate()
            self._move_level(median(self._pool))

    def recovered(self, after_s: list[float]) -> None:
        """An episode ended with these iterations: a level learnt from few iterations is learnt again from here."""
        assert self._level is not None
        if self._learnt >= _YOUNG:
            return
        after = [math.log(seconds) for seconds in after_s]
        self._level = max(self._level, median(after))
        self._pool.extend(after)
        self._learnt = 0

    def forget_pending(self) -> None:
        """Drop the iterations held back: an episode began with them."""
        self._pending.clear()

    def _move_level(self, pool_level: float) -> None:
        assert self._level is not None
        if self._learnt <= _POOL:
            self._level = pool_level
        elif pool_level > self._level:
            self._level = min(pool_level, self._level + _DRIFT_UP * _REFRESH)
        else:
            self._level += (pool_level - self._level) * _DRIFT_DOWN * _REFRESH

    def _estimate(self) -> None:
        middle = median(self._pool)
        away = [sample - middle for sample in self._pool]
        self._spread = _MAD_TO_DEVIATION * median(abs(a) for a in away)
        if self._spread == 0.0:
            self._correlation = 0.0
            return
        limit = 3 * self._spread  # spikes would otherwise decide the correlation
        clipped = [min(max(a, -limit), limit) for a in away]
        power = sum(a * a for a in clipped)
        together = sum(a * b for a, b in pairwise(clipped))
        self._correlation = min(max(together / power, 0.0), 0.6)
