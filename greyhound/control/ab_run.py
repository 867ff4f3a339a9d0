"""The master's side of `greyhound ab`: which windows there are, when they are sent, and what came of each. Pure.

Windows come in pairs, one muted and one recording, in blocks of two pairs: ABBA or BAAB, drawn by chance, so that a
drift of the iteration time cancels and nothing periodic in the job falls into step with them. Between two windows the
hooks record for some iterations, as a muted window is timed from the last end of an iteration before it to the first
after it.
"""

import math
import random
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from greyhound.control.messages import AbMeasure, AbStop, AbWindow

LEAST_PAIRS = 3
ITERATIONS = 12
LEAST_ITERATIONS = 8  # of which 5 lie in a window for certain
LEAST_S, MOST_S = 4.0, 300.0
GAP_ITERATIONS, LEAST_GAP_S = 3, 1.0
LEAD_S = 2.5  # the nodes look for messages once a second
MOST_SETTLE_S = 30.0
ANSWER_S = 75.0  # a node waits a minute for the first iteration after a window


class AbError(ValueError):
    """No comparison can be made; the text says why and what would do."""


@dataclass(frozen=True)
class Plan:
    """Windows of equal length with gaps between them; `muted[i]` tells window i's kind."""

    window_s: float
    gap_s: float
    muted: tuple[bool, ...]


def plan(minutes: float, iteration_s: float, rng: random.Random) -> Plan:
    """The windows for so many minutes with iterations of so many seconds; AbError where they are too few."""
    window_s = min(max(LEAST_S, ITERATIONS * iteration_s), max(MOST_S, LEAST_ITERATIONS * iteration_s))
    gap_s = max(LEAST_GAP_S, GAP_ITERATIONS * iteration_s)
    pairs = int(minutes * 60 / (window_s + gap_s) / 2)
    if pairs < LEAST_PAIRS:
        needed = math.ceil(LEAST_PAIRS * 2 * (window_s + gap_s) / 6) / 10
        raise AbError(f"with {iteration_s:.3g} s an iteration at least --minutes {needed:.1f} are needed")
    muted: list[bool] = []
    while len(muted) < 2 * pairs:
        first = rng.random() < 0.5
        muted += [first, not first, not first, first]
    return Plan(window_s, gap_s, tuple(muted[: 2 * pairs]))


@dataclass
class _Window:
    start_s: float
    dropped: str = ""
    measures: dict[int, AbMeasure] = field(default_factory=dict)


class AbRun:
    """One comparison; `step` is called about once a second. Times are wall clock seconds."""

    def __init__(self, run: str, made: Plan, nodes: Collection[int], emit: Callable[[dict[str, Any]], None]) -> None:
        """`nodes` are those with ranks; `emit` takes the data of one event `ab`."""
        self.run = run
        self.over = False
        self._plan = made
        self._nodes = set(nodes)
        self._emit = emit
        # What disturbs a window is found some iterations later.
        self._settle_s = min(made.window_s, MOST_SETTLE_S)
        self._begin_s = 0.0
        self._sent = 0
        self._waiting: dict[int, _Window] = {}
        self._done = 0

    def start(self, now_s: float) -> None:
        """Begin; the first window follows LEAD_S later."""
        self._begin_s = now_s + LEAD_S
        made = self._plan
        self._emit({"run": self.run, "phase": "start", "windows": len(made.muted), "window_s": round(made.window_s, 3)})

    def status(self) -> dict[str, Any]:
        """For the status."""
        return {"run": self.run, "windows": len(self._plan.muted), "done": self._done}

    def step(self, now_s: float, disturbed: str) -> list[AbWindow]:
        """Windows to send now. `disturbed` says what goes on in the job that a comparison can't stand."""
        due = []
        while self._sent < len(self._plan.muted) and now_s >= self._start_s(self._sent) - LEAD_S:
            due.append(self._order(self._sent))
            self._waiting[self._sent] = _Window(self._start_s(self._sent))
            self._sent += 1
        for number, window in list(self._waiting.items()):
            end_s = window.start_s + self._plan.window_s
            if disturbed and now_s >= window.start_s:
                window.dropped = window.dropped or disturbed
            answered = self._nodes <= window.measures.keys() and now_s > end_s + self._settle_s
            if answered or now_s > end_s + ANSWER_S + self._settle_s:
                self._finish(number, self._waiting.pop(number))
        if self._sent == len(self._plan.muted) and not self._waiting:
            self._end("done")
        return due

    def _start_s(self, number: int) -> float:
        return self._begin_s + number * (self._plan.window_s + self._plan.gap_s)

    def _order(self, number: int) -> AbWindow:
        muted, start_ns = self._plan.muted[number], int(self._start_s(number) * 1e9)
        return AbWindow(self.run, number, muted, start_ns, self._plan.window_s)

    def take(self, node: int, measure: AbMeasure) -> None:
        """A node's answer; one that comes too late counts for nothing."""
        if measure.run == self.run and measure.window in self._waiting:
            self._waiting[measure.window].measures[node] = measure

    def _finish(self, number: int, window: _Window) -> None:
        self._done += 1
        missing = self._nodes - window.measures.keys()
        whys = [m.why_not for m in window.measures.values() if m.why_not]
        dropped = window.dropped or next(iter(whys), "") or (f"no word of {len(missing)} nodes" if missing else "")
        good = [m for m in window.measures.values() if m.iteration_s > 0] or [AbMeasure("", 0, 0, 0, 0.0, 0.0, "")]
        self._emit(
            {
                "run": self.run,
                "phase": "window",
                "window": number,
                "muted": self._plan.muted[number],
                "iterations": min(m.iterations for m in good),
                "iteration_s": round(median(m.iteration_s for m in good), 9),
                "share": round(median(m.share for m in good), 6),
                "dropped": dropped or None,
            }
        )

    def _end(self, why: str) -> None:
        if not self.over:
            self.over = True
            self._emit({"run": self.run, "phase": "end", "reason": why})

    def stop(self, why: str) -> AbStop:
        """Before its time; what the nodes must be told."""
        self._end(why)
        return AbStop(self.run)
