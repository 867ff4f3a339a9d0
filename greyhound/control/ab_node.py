"""A node's part in `greyhound ab`: mutes its ranks in the windows that the master names, and measures all windows.

A window ends here by this node's own clock: nothing that happens to the master or the way to it leaves a job muted.
"""

import time
from collections.abc import Collection
from dataclasses import dataclass, field
from statistics import median
from typing import Protocol

from greyhound.control.ab_meter import Measured, WindowMeter
from greyhound.control.messages import AbMeasure, AbWindow

MOST_WINDOW_S = 600.0
MOST_WINDOWS = 8
PATIENCE_S = 60.0  # for the first iteration that ends after a window


class Measurable(Protocol):
    """What a window needs of a rank's watch."""

    def begin_window(self, muted: bool, begin_ns: int, end_ns: int) -> WindowMeter: ...

    def end_window(self, meter: WindowMeter) -> Measured: ...


@dataclass
class _Window:
    order: AbWindow
    begin_s: float
    end_s: float
    meters: list[tuple[Measurable, WindowMeter]] | None = None


@dataclass
class AbNode:
    """Takes the master's windows, says whether the ranks are muted for one, and gives the measures that are ready."""

    _windows: list[_Window] = field(default_factory=list)

    def take(self, order: AbWindow, now_s: float) -> None:
        """A window to come; one that is over, or more than there can be, is left out. `now_s` is monotonic."""
        begin_s = now_s + (order.start_ns - time.time_ns()) / 1e9
        length_s = min(order.seconds, MOST_WINDOW_S)
        known = any(w.order.run == order.run and w.order.window == order.window for w in self._windows)
        if now_s < begin_s + length_s and not known and len(self._windows) < MOST_WINDOWS:
            self._windows.append(_Window(order, begin_s, begin_s + length_s))

    def stop(self) -> None:
        """Forget all windows."""
        for window in self._windows:
            _measure(window)
        self._windows.clear()

    def is_muted(self, now_s: float) -> bool:
        """Whether a muted window is on."""
        return any(w.order.muted and w.meters is not None and now_s < w.end_s for w in self._windows)

    def step(self, now_s: float, watches: Collection[Measurable]) -> list[AbMeasure]:
        """Begin windows that are due, before the mode word is written; the measures of those that are complete."""
        ready = []
        for window in list(self._windows):
            if window.meters is None and now_s >= window.begin_s:
                self._begin(window, now_s, watches)
            elif window.meters is not None and self._is_over(window, now_s):
                self._windows.remove(window)
                ready.append(_measure(window))
        return ready

    def _begin(self, window: _Window, now_s: float, watches: Collection[Measurable]) -> None:
        begin_ns = time.monotonic_ns()
        end_ns = begin_ns + int((window.end_s - now_s) * 1e9)
        muted = window.order.muted
        window.meters = [(watch, watch.begin_window(muted, begin_ns, end_ns)) for watch in watches]

    @staticmethod
    def _is_over(window: _Window, now_s: float) -> bool:
        if now_s < window.end_s:
            return False
        complete = all(meter.is_complete(time.monotonic_ns()) for _, meter in window.meters or [])
        return complete or now_s > window.end_s + PATIENCE_S


def _measure(window: _Window) -> AbMeasure:
    """One answer a node: the ranks of a job go at one pace."""
    measured = [watch.end_window(meter) for watch, meter in window.meters or []]
    good = [m for m in measured if not m.why_not]
    why_not = next((m.why_not for m in measured if m.why_not), "" if good else "no rank here")
    return AbMeasure(
        run=window.order.run,
        window=window.order.window,
        ranks=len(good),
        iterations=min((m.iterations for m in good), default=0),
        iteration_s=median(m.iteration_s for m in good) if good else 0.0,
        share=median(m.share for m in good) if good else 0.0,
        why_not=why_not,
    )
