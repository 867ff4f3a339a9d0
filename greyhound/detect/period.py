"""Turns a stream of calls into iterations: finds the period, then follows it (paper, section 4.2)."""

from collections import Counter, deque
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from greyhound.detect.buffer import CallBuffer
from greyhound.detect.contexts import Symbols
from greyhound.detect.follower import Follower, Segments
from greyhound.detect.levels import Ints
from greyhound.detect.periodicity import Pattern, find_pattern, tolerance

_CHUNK_CALLS = 1 << 16
_FIRST_SEARCH_CALLS = 12
# The buffer grows by this share between two searches, a small one and a large one: their cost stays linear.
_SEARCH_STEP, _LARGE_SEARCH_STEP = 0.25, 0.5
_LARGE_CALLS = 1 << 18
_LEAST_SEARCH_STEP_CALLS = 4
_BUFFER_CALLS = 1 << 17
_BUFFER_PERIODS, _BUFFER_PERIODS_IF_ODD = 6, 200  # three iterations of 64 micro-batches
_MAX_BUFFER_CALLS = 1 << 22
_FEWEST_LENGTHS, _MOST_LENGTHS = 5, 32
_ODD_SEGMENTS = 3  # a longer period shows in segments that are others
_ASTRAY_SEGMENTS = 3
_ASTRAY_PERIODS = 4
_CHANGED_SEGMENTS = 4
# Of a new pattern: that has the old one's unique calls; that has nothing of it; or only a part, like an evaluation.
_CHANGED_WORK_SEGMENTS, _NEW_WORK_SEGMENTS, _LESS_WORK_SEGMENTS = 3, 8, 4096
_SAME_WORK_SHARE, _NEW_WORK_SHARE = 0.5, 0.1
_LOG_CALLS = 3  # calls, at most, of a log between iterations


@dataclass(slots=True, unsafe_hash=True)  # not to be changed; frozen ones take three times as long to make
class Iteration:
    """One iteration: its number from 0, the time of its last call (CLOCK_MONOTONIC) and how long it took.

    ``pattern`` grows when the calls of an iteration become others (or prove to be part of a longer iteration; the
    numbers then begin again): times of different patterns aren't comparable.
    """

    index: int
    end_ns: int
    seconds: float
    pattern: int = 0


class IterationClock:
    """Iterations of one process from its calls; memory is bounded and a call costs the same however long it runs."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._buffer = CallBuffer()
        self._next_search = _FIRST_SEARCH_CALLS
        self._follower: Follower | None = None
        self._less_calls = 0  # the shorter period that the last search found, 0 if it found none
        self._home: Pattern | None = None  # the training's, while an evaluation may be followed
        self._settled = False
        self._astray = False
        self._astray_at = 0  # position in the buffer
        self._base_index = self._next_index = 1  # of the first iteration that ends in the buffer with a known begin
        self._pattern_number = 0
        self._irregular = self._odd = 0
        self._odd_ever = False
        self._calls_since_regular = 0
        self._gap_from_ns: int | None = None
        self._usual_ns = 0
        self._last_end_ns = 0
        self._other_sums: deque[int] = deque(maxlen=_CHANGED_SEGMENTS)
        self._lengths: deque[int] = deque(maxlen=_MOST_LENGTHS)  # of the last regular iterations

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
        if self._searching:
            self._buffer.append(symbols, t_ns)
        iterations: list[Iteration] = []
        if self._follower is not None:
            iterations = self._take(self._follower.follow(symbols, t_ns), len(symbols))
        if self._search_is_due():
            iterations = self._search(iterations)
        self._trim()
        return iterations

    @property
    def _searching(self) -> bool:
        return not self._settled or self._astray

    def _search_is_due(self) -> bool:
        if not self._searching or len(self._buffer) < self._next_search:
            return False
        return not self.locked or self._odd >= _ODD_SEGMENTS

    def _drop_buffer(self) -> None:
        self._buffer.clear()
        self._next_search = _FIRST_SEARCH_CALLS

    def _trim(self) -> None:
        """Bound the buffer, and give up looking for a longer period after long enough."""
        if self._follower is not None and not self._astray and not self._settled:
            calls = self._follower.pattern.calls
            odd = self._odd_ever
            limit = max(_BUFFER_CALLS, (_BUFFER_PERIODS_IF_ODD if odd else _BUFFER_PERIODS) * calls)
            if len(self._buffer) > min(limit, _MAX_BUFFER_CALLS):
                self._settled = True
                self._drop_buffer()
        if len(self._buffer) > _MAX_BUFFER_CALLS:
            dropped = _MAX_BUFFER_CALLS // 4
            self._buffer.drop(dropped)
            self._astray_at = max(self._astray_at - dropped, 0)
            self._next_search = min(self._next_search, len(self._buffer) + dropped)

    def _take(self, segments: Segments, pushed: int) -> list[Iteration]:
        """Number the segments, and see whether they still follow the pattern."""
        assert self._follower is not None
        pattern = self._follower.pattern
        slack = tolerance(pattern.calls)
        odd = int(np.count_nonzero(segments.sums != np.uint64(pattern.fingerprint)))
        self._odd += odd
        self._odd_ever = self._odd_ever or self._odd > 0
        if odd == 0 and self._gap_from_ns is None and np.all(segments.calls == pattern.calls):
            iterations = self._all_regular(segments)
            self._watch(pushed, bool(iterations))
            return iterations
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
            self._regular(calls, total)
            self._usual_ns = took_ns
            iterations.append(Iteration(index, end_ns, took_ns / 1e9, self._pattern_number))
        self._watch(pushed, bool(iterations))
        return iterations

    def _all_regular(self, segments: Segments) -> list[Iteration]:
        """The iterations of segments that all follow the pattern."""
        count = len(segments.calls)
        if count == 0:
            return []
        first, self._next_index = self._next_index, self._next_index + count
        self._irregular = 0
        self._other_sums.clear()
        self._lengths.extend(segments.calls[-_MOST_LENGTHS:].tolist())
        self._last_end_ns, self._usual_ns = int(segments.end_ns[-1]), int(segments.took_ns[-1])
        ends, seconds, number = segments.end_ns.tolist(), (segments.took_ns / 1e9).tolist(), self._pattern_number
        return [Iteration(first + i, ends[i], seconds[i], number) for i in range(count)]

    def _count_missed(self, begin_ns: int) -> None:
        """After a gap: the numbers of the iterations whose calls were lost, by their usual time."""
        if self._gap_from_ns is None:
            return
        if self._usual_ns > 0:
            self._next_index += max(round((begin_ns - self._gap_from_ns) / self._usual_ns), 0)
        self._gap_from_ns = None

    def _regular(self, calls: int, total: int) -> None:
        """Note an iteration of the right length; if its calls are steadily others, the pattern has changed."""
        assert self._follower is not None
        self._irregular = 0
        self._lengths.append(calls)
        pattern = self._follower.pattern
        if calls != pattern.calls:
            pattern = self._follower.pattern = replace(pattern, calls=self._usual_calls())
        if total == pattern.fingerprint:
            self._other_sums.clear()
            return
        self._other_sums.append(total)
        if len(self._other_sums) == _CHANGED_SEGMENTS and len(set(self._other_sums)) == 1:
            self._follower.pattern = replace(pattern, fingerprint=total)
            self._pattern_number += 1
            self._other_sums.clear()

    def _usual_calls(self) -> int:
        """Calls in an iteration: where threads reorder them, the first few segments may all be of another length."""
        assert self._follower is not None
        usual, often = Counter(self._lengths).most_common(1)[0]
        return usual if 2 * often > len(self._lengths) >= _FEWEST_LENGTHS else self._follower.pattern.calls

    def _watch(self, pushed: int, regular: bool) -> None:
        """Whether the stream has left the pattern."""
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
            self._astray_at = len(self._buffer)

    def _search(self, iterations: list[Iteration]) -> list[Iteration]:
        """Look for a pattern in the buffer; its iterations replace those that the old one found."""
        held = len(self._buffer)
        step = _SEARCH_STEP if held < _LARGE_CALLS else _LARGE_SEARCH_STEP
        self._next_search = held + max(int(held * step), _LEAST_SEARCH_STEP_CALLS)
        self._odd = 0
        if self._astray:
            found = self._other_pattern()
            if found is not None:
                # What the new pattern is part of may show later: that search begins here, too.
                self._base_index = self._next_index
                self._settled = False
                self._buffer.drop(self._astray_at)
                self._astray_at = 0
                return iterations + self._lock(found)
        if not self._settled and not (self._astray and self._home and self._home.once):
            known = 0.0 if self._follower is None else 1.5 * self._follower.pattern.calls
            patient = self._follower is None
            found = find_pattern(self._buffer.symbols, self._buffer.t_ns, patient=patient, known=self._home)
            if found is not None and (found.calls > known or self._is_less_again(found)):
                self._next_index = self._base_index
                return self._lock(found)
        return iterations

    def _is_less_again(self, found: Pattern) -> bool:
        """Whether this search and the one before found that the known pattern is a number of shorter ones and a log."""
        known = 0 if self._follower is None else self._follower.pattern.calls
        is_log = 2 * found.calls <= known and known % found.calls <= _LOG_CALLS
        again = is_log and found.calls == self._less_calls
        self._less_calls = found.calls if is_log else 0
        return again

    def _other_pattern(self) -> Pattern | None:
        """A pattern that the stream has followed since it left the known one; an evaluation isn't taken for one."""
        assert self._home is not None
        symbols, t_ns = self._buffer.symbols[self._astray_at :], self._buffer.t_ns[self._astray_at :]
        found = find_pattern(symbols, t_ns, _CHANGED_WORK_SEGMENTS, patient=False)
        if found is None or _same_work(found, self._home):
            return found
        new = len(found.members & self._home.members) < _NEW_WORK_SHARE * len(found.members) and len(found.once) >= 2
        return find_pattern(symbols, t_ns, _NEW_WORK_SEGMENTS if new else _LESS_WORK_SEGMENTS)

    def _lock(self, pattern: Pattern) -> list[Iteration]:
        """Follow a pattern from the beginning of the buffer on."""
        if self._follower is not None and (pattern.calls, pattern.fingerprint) != (
            self._follower.pattern.calls,
            self._follower.pattern.fingerprint,
        ):
            self._pattern_number += 1
        self._astray = False
        self._irregular = self._odd = self._calls_since_regular = 0
        self._odd_ever = False
        self._other_sums.clear()
        self._lengths.clear()
        self._follower = Follower(pattern)
        self._home = pattern
        segments = self._follower.follow(self._buffer.symbols, self._buffer.t_ns)
        return self._take(segments.from_first_regular(pattern.calls), 0)


def _same_work(found: Pattern, known: Pattern) -> bool:
    """Whether a pattern has what ends the iterations of the known one, and most else that occurs once in them."""
    ends = known.width > 1 or known.anchor in found.members
    return ends and len(found.members & known.once) >= _SAME_WORK_SHARE * max(len(known.once), 1)
