"""Turns a stream of calls into iterations: finds the period, then follows it (paper, section 4.2)."""

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from greyhound.detect.periodicity import Ints, Pattern, Symbols, find_pattern, tolerance

_CHUNK_CALLS = 1 << 16
_FIRST_SEARCH_CALLS = 12
# The buffer grows by this share between two searches, unlocked and locked: their cost stays linear.
_SEARCH_STEP, _LOCKED_SEARCH_STEP = 0.2, 0.25
_LEAST_SEARCH_STEP_CALLS = 4
_BUFFER_CALLS = 1 << 17
_BUFFER_PERIODS = 6
_MAX_BUFFER_CALLS = 1 << 20
_SETTLED_CALLS, _SETTLED_PERIODS = 1 << 14, 256  # after both a longer period is no longer looked for
_ASTRAY_SEGMENTS = 3
_ASTRAY_PERIODS = 4
_RELOCK_SEGMENTS = 8  # wanted of a new pattern, so that an evaluation isn't taken for one
_CHANGED_SEGMENTS = 4
_WORD = 2**64 - 1


@dataclass(frozen=True)
class Iteration:
    """One iteration: its number from 0, the time of its last call (CLOCK_MONOTONIC) and how long it took.

    ``pattern`` grows when the calls of an iteration become others (or prove to be part of a longer iteration; the
    numbers then begin again): times of different patterns aren't comparable.
    """

    index: int
    end_ns: int
    seconds: float
    pattern: int = 0


@dataclass(frozen=True)
class _Segments:
    """What lies between successive anchors."""

    end_ns: Ints
    took_ns: Ints
    calls: Ints
    sums: Symbols


class _Follower:
    """Cuts the stream at the anchors of a known pattern; nothing is kept but the running segment."""

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern
        self._occurrences = 0
        self._open_calls = 0
        self._open_sum = 0
        self._last_ns: int | None = None

    def follow(self, symbols: Symbols, t_ns: Ints) -> _Segments:
        hits = np.flatnonzero(symbols == np.uint64(self.pattern.anchor))
        every = self.pattern.every
        ends = hits[(every - 1 - self._occurrences) % every :: every]
        self._occurrences = (self._occurrences + len(hits)) % every
        running = np.cumsum(symbols, dtype=np.uint64)
        at_end = running[ends] + np.uint64(self._open_sum)
        calls = np.diff(ends, prepend=-1 - self._open_calls)
        sums = np.diff(at_end, prepend=np.uint64(0))
        end_ns = t_ns[ends]
        if len(ends):
            took_ns = np.diff(end_ns, prepend=end_ns[0] if self._last_ns is None else self._last_ns)
            self._open_calls = len(symbols) - 1 - int(ends[-1])
            self._open_sum = (int(running[-1]) - int(running[ends[-1]])) & _WORD
            first = 1 if self._last_ns is None else 0
            self._last_ns = int(end_ns[-1])
            return _Segments(end_ns[first:], took_ns[first:], calls[first:], sums[first:])
        self._open_calls += len(symbols)
        self._open_sum = (self._open_sum + int(running[-1])) & _WORD
        return _Segments(end_ns, end_ns, calls, sums)

    def break_segment(self) -> None:
        """Forget the running segment: calls are missing from it."""
        self._last_ns = None


class IterationClock:
    """Iterations of one process from its calls; memory is bounded and a call costs the same however long it runs."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._chunks: deque[tuple[Symbols, Ints]] = deque()
        self._buffered = 0
        self._next_search = _FIRST_SEARCH_CALLS
        self._follower: _Follower | None = None
        self._settled = False
        self._astray = False
        self._astray_at = 0  # position in the buffer
        self._base_index = self._next_index = 1  # of the first iteration that ends in the buffer with a known begin
        self._pattern_number = 0
        self._irregular = 0
        self._calls_since_regular = 0
        self._followed = 0
        self._gap_from_ns: int | None = None
        self._usual_ns = 0
        self._last_end_ns = 0
        self._other_sums: deque[int] = deque(maxlen=_CHANGED_SEGMENTS)

    @property
    def period(self) -> int | None:
        """Calls in an iteration; None before the first lock."""
        return None if self._follower is None else self._follower.pattern.calls

    @property
    def locked(self) -> bool:
        """Whether the latest calls follow the known pattern."""
        return self._follower is not None and not self._astray

    @property
    def pattern(self) -> int:
        """The number of the current pattern, as in ``Iteration.pattern``."""
        return self._pattern_number

    def push(self, symbols: NDArray[np.uint64], t_ns: NDArray[np.int64]) -> list[Iteration]:
        """Take the next calls (symbols and CLOCK_MONOTONIC ns, same length); the iterations that ended with them.

        The first lock also returns the iterations that had passed before it. Iterations that hold much else (an
        evaluation, a checkpoint) are counted but not returned.
        """
        if len(symbols) != len(t_ns):
            raise ValueError(f"{len(symbols)} symbols with {len(t_ns)} times; each call needs both")
        times = np.asarray(t_ns).astype(np.int64, copy=False)
        iterations: list[Iteration] = []
        for at in range(0, len(symbols), _CHUNK_CALLS):
            iterations += self._push_chunk(symbols[at : at + _CHUNK_CALLS], times[at : at + _CHUNK_CALLS])
        return iterations

    def gap(self) -> None:
        """Calls were lost before the next push: the running iteration isn't timed."""
        if self._follower is None:
            self._drop_buffer()
            return
        self._gap_from_ns = self._last_end_ns
        self._follower.break_segment()

    def _push_chunk(self, symbols: Symbols, t_ns: Ints) -> list[Iteration]:
        self._buffer(symbols, t_ns)
        iterations: list[Iteration] = []
        if self._follower is not None:
            iterations = self._take(self._follower.follow(symbols, t_ns), len(symbols))
        if (not self._settled or self._astray) and self._buffered >= self._next_search:
            iterations = self._search(iterations)
        self._trim()
        return iterations

    def _buffer(self, symbols: Symbols, t_ns: Ints) -> None:
        if not self._settled or self._astray:
            self._chunks.append((symbols.copy(), t_ns.copy()))
            self._buffered += len(symbols)

    def _drop_buffer(self) -> None:
        self._chunks.clear()
        self._buffered = 0
        self._next_search = _FIRST_SEARCH_CALLS

    def _trim(self) -> None:
        """Bound the buffer, and give up looking for a longer period after long enough."""
        if self._follower is not None and not self._astray and not self._settled:
            calls = self._follower.pattern.calls
            limit = max(_BUFFER_CALLS, _BUFFER_PERIODS * calls)
            long_enough = self._followed >= _SETTLED_PERIODS and self._buffered >= _SETTLED_CALLS
            if long_enough or self._buffered > limit:
                self._settled = True
                self._drop_buffer()
        while self._buffered > _MAX_BUFFER_CALLS:
            dropped = len(self._chunks.popleft()[0])
            self._buffered, self._astray_at = self._buffered - dropped, max(self._astray_at - dropped, 0)
            self._next_search = min(self._next_search, self._buffered + _MAX_BUFFER_CALLS // 4)

    def _take(self, segments: _Segments, pushed: int) -> list[Iteration]:
        """Number the segments, and see whether they still follow the pattern."""
        assert self._follower is not None
        pattern = self._follower.pattern
        slack = tolerance(pattern.calls)
        iterations = []
        for end_ns, took_ns, calls, total in zip(
            segments.end_ns.tolist(), segments.took_ns.tolist(), segments.calls.tolist(), segments.sums.tolist(),
            strict=True,
        ):  # fmt: skip
            self._count_missed(end_ns - took_ns)
            self._last_end_ns = end_ns
            if calls < pattern.calls - slack:
                self._irregular += 1
                continue
            index, self._next_index = self._next_index, self._next_index + 1
            if calls > pattern.calls + slack:
                self._irregular += 1
                continue
            self._regular(total)
            self._usual_ns = took_ns
            iterations.append(Iteration(index, end_ns, took_ns / 1e9, self._pattern_number))
        self._watch(segments, pushed, bool(iterations))
        return iterations

    def _count_missed(self, begin_ns: int) -> None:
        """After a gap: the numbers of the iterations whose calls were lost, by their usual time."""
        if self._gap_from_ns is None:
            return
        if self._usual_ns > 0:
            self._next_index += max(round((begin_ns - self._gap_from_ns) / self._usual_ns), 0)
        self._gap_from_ns = None

    def _regular(self, total: int) -> None:
        """Note an iteration of the right length; if its calls are steadily others, the pattern has changed."""
        assert self._follower is not None
        self._irregular = 0
        self._followed += 1
        pattern = self._follower.pattern
        if total == pattern.fingerprint:
            self._other_sums.clear()
            return
        self._other_sums.append(total)
        if len(self._other_sums) == _CHANGED_SEGMENTS and len(set(self._other_sums)) == 1:
            self._follower.pattern = Pattern(pattern.anchor, pattern.every, pattern.calls, total)
            self._pattern_number += 1
            self._other_sums.clear()

    def _watch(self, segments: _Segments, pushed: int, regular: bool) -> None:
        assert self._follower is not None
        self._calls_since_regular = 0 if regular else self._calls_since_regular + pushed
        calls = self._follower.pattern.calls
        if regular and self._irregular == 0:
            if self._astray and self._settled:
                self._drop_buffer()
            self._astray = False
        elif not self._astray and (
            (self._irregular >= _ASTRAY_SEGMENTS and (regular or self._calls_since_regular > calls))
            or self._calls_since_regular > _ASTRAY_PERIODS * calls + 16
        ):
            self._astray = True
            if self._settled:
                self._drop_buffer()
            self._astray_at = self._buffered

    def _search(self, iterations: list[Iteration]) -> list[Iteration]:
        """Look for a pattern in the buffer; its iterations replace those that the old one found."""
        symbols = np.concatenate([chunk[0] for chunk in self._chunks])
        t_ns = np.concatenate([chunk[1] for chunk in self._chunks])
        step = _LOCKED_SEARCH_STEP if self.locked else _SEARCH_STEP
        self._next_search = self._buffered + max(int(self._buffered * step), _LEAST_SEARCH_STEP_CALLS)
        if not self._settled:
            known = 0.0 if self._follower is None else 1.5 * self._follower.pattern.calls
            found = find_pattern(symbols, t_ns)
            if found is not None and found.calls > known:
                self._next_index = self._base_index
                return self._lock(found, symbols, t_ns)
        if self._astray:
            symbols, t_ns = symbols[self._astray_at :], t_ns[self._astray_at :]
            found = find_pattern(symbols, t_ns, _RELOCK_SEGMENTS)
            if found is not None:
                # What the new pattern is part of may show later: that search begins here, too.
                self._base_index = self._next_index
                self._settled = False
                self._chunks = deque([(symbols, t_ns)])
                self._buffered, self._astray_at = len(symbols), 0
                return iterations + self._lock(found, symbols, t_ns)
        return iterations

    def _lock(self, pattern: Pattern, symbols: Symbols, t_ns: Ints) -> list[Iteration]:
        """Follow a pattern from the beginning of the buffer on."""
        if self._follower is not None and (pattern.calls, pattern.fingerprint) != (
            self._follower.pattern.calls,
            self._follower.pattern.fingerprint,
        ):
            self._pattern_number += 1
        self._astray = False
        self._followed = 0
        self._irregular = self._calls_since_regular = 0
        self._other_sums.clear()
        self._follower = _Follower(pattern)
        segments = self._follower.follow(symbols, t_ns)
        return self._take(_from_first_regular(segments, pattern.calls), 0)


def _from_first_regular(segments: _Segments, calls: int) -> _Segments:
    """Without the segments before the first regular one, but for long ones right before it: iterations with extras."""
    lengths = segments.calls
    regular = np.flatnonzero(np.abs(lengths - calls) <= tolerance(calls))
    first = int(regular[0]) if len(regular) else len(lengths)
    while first > 0 and calls <= lengths[first - 1] < 2 * calls:
        first -= 1
    return _Segments(
        segments.end_ns[first:],
        segments.took_ns[first:],
        segments.calls[first:],
        segments.sums[first:],
    )
