"""Cuts a call stream into segments at the anchors of a known pattern."""

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from greyhound.detect.contexts import Symbols, contexts, without_sizes
from greyhound.detect.levels import Ints
from greyhound.detect.periodicity import Pattern, tolerance

_WORD = 2**64 - 1
_Whole = TypeVar("_Whole", bound=np.integer[Any])


@dataclass(frozen=True)
class Segments:
    """What lies between successive ends of iterations; sums are of the symbols, modulo 2^64."""

    end_ns: Ints
    took_ns: Ints
    calls: Ints
    sums: Symbols

    def __getitem__(self, part: slice) -> "Segments":
        return Segments(self.end_ns[part], self.took_ns[part], self.calls[part], self.sums[part])

    def from_first_regular(self, calls: int) -> "Segments":
        """Without those before the first regular one, but for long ones right before it: iterations with extras."""
        regular = np.flatnonzero(np.abs(self.calls - calls) <= tolerance(calls))
        first = int(regular[0]) if len(regular) else len(self.calls)
        while first > 0 and calls <= self.calls[first - 1] < 2 * calls:
            first -= 1
        return self[first:]


def _steps(values: NDArray[_Whole], before: int) -> NDArray[_Whole]:
    """Differences to the value before, that of the first to ``before``; np.diff takes far longer on a few values."""
    steps = values.copy()
    steps[1:] -= values[:-1]
    steps[0] -= values.dtype.type(before)
    return steps


class Follower:
    """Nothing is kept but the length and sum of the running segment and the calls of one context."""

    _tail: Symbols
    _tail_ns: Ints

    def __init__(self, pattern: Pattern) -> None:
        """Begin before any call."""
        self.pattern = pattern
        self._ragged = np.array(pattern.ragged, dtype=np.uint64)
        self._open_calls = 0
        self._open_sum = 0
        self._last_ns: int | None = None
        self._forget_tail()

    def follow(self, symbols: Symbols, t_ns: Ints) -> Segments:
        """The segments that end with these calls; the first end only begins one."""
        ahead = self.pattern.width - 1
        symbols = without_sizes(symbols, self._ragged)
        if len(self._tail):
            symbols = np.concatenate([self._tail, symbols])
            t_ns = np.concatenate([self._tail_ns, t_ns])
        context = contexts(symbols, self.pattern.width)[ahead:]
        ends = np.flatnonzero(context == np.uint64(self.pattern.anchor))
        done = len(context)
        self._tail, self._tail_ns = symbols[done:].copy(), t_ns[done:].copy()
        return self._cut(symbols[:done], t_ns[:done], ends)

    def _cut(self, symbols: Symbols, t_ns: Ints, ends: Ints) -> Segments:
        if len(ends) == 0:
            self._open_calls += len(symbols)
            self._open_sum = (self._open_sum + int(symbols.sum(dtype=np.uint64))) & _WORD
            return Segments(t_ns[:0], t_ns[:0], ends, symbols[:0])
        running = np.cumsum(symbols, dtype=np.uint64)
        at_end = running[ends] + np.uint64(self._open_sum)
        end_ns = t_ns[ends]
        segments = Segments(
            end_ns=end_ns,
            took_ns=_steps(end_ns, int(end_ns[0]) if self._last_ns is None else self._last_ns),
            calls=_steps(ends, -1 - self._open_calls),
            sums=_steps(at_end, 0),
        )
        first = 1 if self._last_ns is None else 0
        self._open_calls = len(symbols) - 1 - int(ends[-1])
        self._open_sum = (int(running[-1]) - int(running[ends[-1]])) & _WORD
        self._last_ns = int(end_ns[-1])
        return segments[first:]

    def break_segment(self) -> None:
        """Forget the running segment: calls are missing from it."""
        self._last_ns = None
        self._forget_tail()

    def _forget_tail(self) -> None:
        self._tail = np.empty(0, dtype=np.uint64)
        self._tail_ns = np.empty(0, dtype=np.int64)
