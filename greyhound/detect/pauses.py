"""Short runs of slow iterations that went by: evaluations, checkpoints, collections. They come again."""

import math
from collections import deque
from dataclasses import dataclass
from statistics import median

_KEPT = 16  # pauses remembered of each band; what matters are the longest of the last ones
_BANDS = 6  # each twice as high (log) as the one below: frequent low ones would push out rare high ones
_LONGEST = 16  # longer runs of slow iterations are levels, not pauses
_SEEN_ONCE = 8  # up to this length one earlier pause is enough; longer ones must have come twice
_ABOUT = 0.5  # share of its height by which an iteration may be off
_ALIKE = 0.75  # share of a shift's height (log) that a pause must have to stand for it


@dataclass(frozen=True)
class Pause:
    """Slow iterations in a row: ``height`` is their median (log over healthy), ``length`` how many are about as high.

    A pause often begins with one that is far longer than the rest, which no one would take for the same level.
    """

    length: int
    height: float


class Pauses:
    """Collects pauses from the iterations that proved healthy; bounded."""

    def __init__(self, floor: float) -> None:
        """Iterations ``floor`` or more (log) above healthy are slow."""
        self._floor = floor
        self._run: list[float] = []
        self._seen: list[deque[Pause]] = [deque(maxlen=_KEPT) for _ in range(_BANDS)]

    def take(self, excess: float) -> None:
        """Take the next healthy iteration, as log over the level."""
        if excess > self._floor:
            if len(self._run) <= _LONGEST:
                self._run.append(excess)
        elif self._run:
            if 2 <= len(self._run) <= _LONGEST:
                height = median(self._run)
                self.add(sum(abs(row - height) <= _ABOUT * height for row in self._run), height)
            self._run.clear()

    def add(self, length: int, height: float) -> None:
        """Take a whole run; single iterations are left to the test of chance, long ones are no pauses."""
        if length <= _LONGEST:
            band = int(math.log2(max(height / self._floor, 1.0)))
            self._seen[min(band, _BANDS - 1)].append(Pause(length, height))

    def longest_like(self, height: float) -> int:
        """Iterations that pauses of this job have lasted that were about as high, or higher; 0 if there were none."""
        lengths = sorted(pause.length for band in self._seen for pause in band if pause.height >= _ALIKE * height)
        if not lengths:
            return 0
        if lengths[-1] <= _SEEN_ONCE or lengths[-2:-1] == lengths[-1:]:
            return lengths[-1]
        return lengths[-2] if len(lengths) > 1 else 0
