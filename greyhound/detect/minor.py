"""Slow-downs below the threshold that last: reported once a level, for the record only."""

import math
from collections import deque
from dataclasses import dataclass
from statistics import median

from greyhound.detect.findings import Minor

LEAST = 1.03  # level from which on it matters: 4 % of 1,024 GPUs for a week are 6,900 GPU-hours
HOLDS_ITERATIONS = 300
_BLOCK = 8  # iterations whose median is one value; a spike or pause doesn't move it
_BLOCKS = 38  # what a level is known from: 304 iterations
_ENDS_AFTER = 3  # blocks in a row below half the least level: jitter of a level near it doesn't reach that far
_LEAST_BLOCKS = 2  # very long iterations reach 30 minutes with few; a median of one block is none
_SURE_ERRORS = 3.0  # standard errors above healthy


@dataclass(frozen=True)
class _Block:
    iteration: int
    excess: float
    seconds: float


class MinorWatch:
    """Takes the iterations that belong to no episode; bounded."""

    def __init__(self, threshold: float, holds_s: float) -> None:
        """From ``threshold`` (share) on it is a fail-slow, not looked for here; after ``holds_s`` it has held."""
        self._holds_s = holds_s
        self._floor = math.log(LEAST)
        self.set_threshold(threshold)
        self._block: list[float] = []
        self._block_start, self._block_s = 0, 0.0
        self._blocks: deque[_Block] = deque(maxlen=_BLOCKS)
        self._onset, self._count, self._held_s, self._low = 0, 0, 0.0, 0
        self._told: float | None = None

    def set_threshold(self, threshold: float) -> None:
        """From now on; what was told stays told."""
        self._ceiling = math.log1p(threshold)

    def interrupt(self) -> None:
        """An episode began: its iterations are none of ours, and those just taken may belong to it."""
        self._block.clear()
        self._block_s = 0.0

    def add(self, iteration: int, seconds: float, excess: float, healthy_s: float, error: float) -> Minor | None:
        """Take an iteration, ``excess`` its log over ``healthy_s``; ``error``: standard error of one's excess."""
        if not self._block:
            self._block_start = iteration
        self._block.append(excess)
        self._block_s += seconds
        if len(self._block) < _BLOCK:
            return None
        block = _Block(self._block_start, median(self._block), self._block_s)
        self.interrupt()
        self._take(block)
        return self._finding(iteration, healthy_s, error)

    def _take(self, block: _Block) -> None:
        if not self._blocks:
            if block.excess < self._floor:
                return
            self._onset, self._count, self._held_s, self._low = block.iteration, 0, 0.0, 0
        self._blocks.append(block)
        self._count += _BLOCK
        self._held_s += block.seconds
        self._low = self._low + 1 if block.excess < self._floor / 2 else 0
        if self._low >= _ENDS_AFTER:
            self._blocks.clear()
            self._told = None

    def _finding(self, iteration: int, healthy_s: float, error: float) -> Minor | None:
        held = self._count >= HOLDS_ITERATIONS or self._held_s >= self._holds_s
        if not held or len(self._blocks) < _LEAST_BLOCKS:
            return None
        excess = median(block.excess for block in self._blocks)
        sure = excess > _SURE_ERRORS * error / math.sqrt(len(self._blocks) * _BLOCK)
        if not sure or not self._floor <= excess < self._ceiling:
            return None
        if self._told is not None and excess < self._told + self._floor:
            return None
        self._told = excess
        level = math.exp(excess)
        return Minor(self._onset, iteration, healthy_s, healthy_s * level, level)
