"""The healthy iteration time: learnt at the start, then corrected within its error only, and lowered by a faster level.

Nothing learns a slower level, or a staircase and a ramp would pass for healthy.
"""

import math
from collections import deque
from statistics import median

import numpy as np
from numpy.typing import NDArray

_RECENT = 128  # healthy iterations from which the jitter is known; it may change, so not all of them
_STRETCH = 32  # of these, iterations whose level counts as one
_PENDING = 16  # iterations held back until it is clear that no episode began with them
_BLOCK = 8  # iterations whose median is one value of the long memory, and between estimates
_BLOCKS = 75  # 600 iterations: a faster level is the healthy one when it has held for half of them
_YOUNG = 32  # iterations below which the level is provisional and follows its samples
_FALLING_UNTIL = 160  # iterations in which a level that falls drops what came before: compilation, caches, allocation
_FALLS = 0.01  # log units by which it must fall for that, beyond its error
_CORRECTION = 2.0  # standard errors by which the provisional level may prove too low
_MAD_TO_DEVIATION = 1.4826
_MEDIAN_INEFFICIENCY = 1.2533  # standard error of a normal sample's median over that of its mean
_PLACES = np.arange(_STRETCH) - (_STRETCH - 1) / 2
_CORRELATION_LIMIT = 0.8  # neighbours alike beyond this are another level, not jitter


class Baseline:
    """Level and spread of healthy iterations, in log seconds; scaling all times shifts the level and nothing else."""

    def __init__(self, warmup: int) -> None:
        """``warmup`` iterations are awaited."""
        self._warmup = max(warmup, 3)
        self._first: list[float] = []
        self._recent: deque[float] = deque(maxlen=_RECENT)
        self._pending: deque[float] = deque()
        self._block: list[float] = []
        self._blocks: deque[float] = deque(maxlen=_BLOCKS)
        self._level: float | None = None
        self._ceiling = math.inf
        self._learnt = 0
        self._spread = 0.0
        self._inflation = 1.0

    @property
    def healthy_s(self) -> float | None:
        """Seconds of a healthy iteration; None during warm-up."""
        return None if self._level is None else math.exp(self._level)

    @property
    def level(self) -> float:
        """Log of the healthy seconds; only after the warm-up."""
        assert self._level is not None
        return self._level

    @property
    def spread(self) -> float:
        """Robust standard deviation of log seconds around the level."""
        return self._spread

    @property
    def learnt(self) -> int:
        """How many iterations proved healthy so far."""
        return self._learnt

    def median_error(self, count: int) -> float:
        """Standard error of the median of ``count`` iterations; neighbours resemble each other (AR(1))."""
        return _MEDIAN_INEFFICIENCY * self._spread * self._inflation / math.sqrt(count)

    def level_error(self) -> float:
        """Standard error of the level itself."""
        return self.median_error(max(self._learnt, 1))

    def recent_excess(self) -> NDArray[np.float64]:
        """The last healthy iterations, as logs over the level, oldest first."""
        return np.array(self._recent) - self.level

    def warm_up(self, seconds: float) -> bool:
        """Take an iteration of the warm-up (the first ones compile, allocate and connect); whether it is over."""
        self._first.append(math.log(seconds))
        if len(self._first) < self._warmup:
            return False
        self._recent.extend(self._first[1:])
        self._learnt = len(self._recent)
        self._first.clear()
        self._level = median(self._recent)
        self._estimate()
        return True

    def learn(self, log_s: float) -> float | None:
        """Take an iteration that isn't part of an episode; the one that is now known to be healthy, if any."""
        self._pending.append(log_s)
        if len(self._pending) <= _PENDING:
            return None
        sample = self._pending.popleft()
        self._recent.append(sample)
        self._block.append(sample)
        self._learnt += 1
        if len(self._block) == _BLOCK:
            self._blocks.append(median(self._block))
            self._block.clear()
            self._estimate()
            self._correct_level()
        return sample

    def recovered(self, after: list[float]) -> None:
        """An episode ended with these iterations (log s): a level known from few is learnt again from here."""
        if self._learnt >= _YOUNG:
            return
        self._level = max(self.level, median(after))
        self._recent.extend(after)

    def forget_pending(self) -> None:
        """Drop the iterations held back: an episode began with them."""
        self._pending.clear()

    def _correct_level(self) -> None:
        if self._learnt < _YOUNG:
            self._level = median(self._recent)
            return
        if math.isinf(self._ceiling):
            self._level = median(self._recent)
            self._set_ceiling(_YOUNG)
        if self._learnt < _FALLING_UNTIL and self._still_falling():
            self._level = median(self._blocks)
            self._set_ceiling(_YOUNG)
        middle = median(self._blocks)
        if middle < self.level:
            self._level = middle
            self._set_ceiling(self._learnt)
        else:
            self._level = min(middle, self._ceiling)

    def _set_ceiling(self, count: int) -> None:
        self._ceiling = min(self._ceiling, self.level + _CORRECTION * self.median_error(count))

    def _still_falling(self) -> bool:
        """Whether the last blocks are faster than the level; those before are dropped then."""
        last = list(self._blocks)[-_YOUNG // _BLOCK :]
        if len(last) < _YOUNG // _BLOCK or median(last) > self.level - _FALLS - self.median_error(_YOUNG):
            return False
        self._blocks = deque(last, maxlen=_BLOCKS)
        return True

    def _estimate(self) -> None:
        # Around the median and the slope of each stretch: a level that rises is no jitter.
        samples = np.array(self._recent)
        whole = len(samples) > _STRETCH
        stretches = samples[len(samples) % _STRETCH :].reshape(-1, _STRETCH) if whole else samples[None]
        away = stretches - _middles(stretches)[:, None]
        if whole:
            away -= _slopes(away)[:, None] * _PLACES
        self._spread = _MAD_TO_DEVIATION * float(_middles(np.abs(away).reshape(1, -1))[0])
        if self._spread == 0.0:
            self._inflation = 1.0
            return
        limit = 3 * self._spread  # spikes would otherwise decide the correlation
        away = np.minimum(np.maximum(away, -limit), limit)
        correlation = float((away[:, 1:] * away[:, :-1]).sum()) / float((away * away).sum())
        correlation = min(max(correlation, 0.0), _CORRELATION_LIMIT)
        self._inflation = math.sqrt((1 + correlation) / (1 - correlation))


def _middles(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """The median of each row; for short rows several times as fast as numpy's."""
    ordered = np.sort(rows, axis=1)
    half = rows.shape[1] // 2
    if rows.shape[1] % 2:
        return np.asarray(ordered[:, half])
    return np.asarray((ordered[:, half - 1] + ordered[:, half]) / 2)


def _slopes(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """By how much each row rises an iteration: the medians of its halves apart, which spikes don't move."""
    half = _STRETCH // 2
    return (_middles(rows[:, half:]) - _middles(rows[:, :half])) / half
