"""One rank's measurement of one window of `greyhound ab`: how long how many iterations took. Pure.

While the hook is muted there are no records, but it counts the calls that pass. So the time between the last recorded
end of an iteration before the window and the first after it is exact, and so is the number of calls in between;
divided by the calls of an iteration they give the iterations. Calls that don't make whole iterations are other work
(an evaluation, a checkpoint): such a window says nothing.
"""

from dataclasses import dataclass

LEAST_ITERATIONS = 5
_TOLERANCE = 0.1  # of an iteration


@dataclass(frozen=True)
class Mark:
    """The end of an iteration: CLOCK_MONOTONIC, and the calls recorded up to it."""

    t_ns: int
    calls: int


@dataclass(frozen=True)
class Measured:
    """Whole iterations between two marks; `share` of their calls passed muted. `why_not`: nothing was measured."""

    iterations: int = 0
    iteration_s: float = 0.0
    share: float = 0.0
    why_not: str = ""


def between(first: Mark, last: Mark, muted_calls: int, period: int) -> Measured:
    """What lies between two marks, with `muted_calls` in between and `period` calls an iteration."""
    calls = last.calls - first.calls + muted_calls
    iterations = round(calls / period)
    if abs(calls / period - iterations) > _TOLERANCE:
        return Measured(why_not="other work than iterations in it")
    if iterations < LEAST_ITERATIONS:
        return Measured(why_not=f"only {iterations} iterations in it")
    return Measured(iterations, (last.t_ns - first.t_ns) / 1e9 / iterations, muted_calls / calls)


class WindowMeter:
    """Takes the marks of one rank from the window's begin on; `begin_ns` and `end_ns` are CLOCK_MONOTONIC."""

    def __init__(self, muted: bool, begin_ns: int, end_ns: int, before: Mark | None, muted_calls: int) -> None:
        """`before` is the last mark so far, `muted_calls` the hook's counter at the begin."""
        self._muted = muted
        self._begin_ns = begin_ns
        self._end_ns = end_ns
        self._first = before if muted else None
        self._last: Mark | None = None
        self._calls_before = muted_calls

    def see(self, mark: Mark) -> None:
        """The next end of an iteration."""
        if self._muted:
            if mark.t_ns <= self._end_ns:
                self._first = mark
            elif self._last is None:
                self._last = mark
        elif self._begin_ns <= mark.t_ns <= self._end_ns:
            self._first = self._first or mark
            self._last = mark

    def is_complete(self, now_ns: int) -> bool:
        """Whether nothing that is still to come counts, once the ring is read up to `now_ns`."""
        return now_ns > self._end_ns and (not self._muted or self._last is not None)

    def result(self, muted_calls: int, period: int | None) -> Measured:
        """What was measured, with the hook's counter as it is now."""
        if self._first is None or self._last is None or period is None:
            return Measured(why_not="no iteration ended in it")
        return between(self._first, self._last, muted_calls - self._calls_before, period)
