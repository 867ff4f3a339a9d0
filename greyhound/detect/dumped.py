"""Feeds the calls of a recorded ring to a method, as the analyzer does with those of a living one."""

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from greyhound.detect.period import Iteration, IterationClock
from greyhound.trace.dump import Dump
from greyhound.trace.records import symbols, top_level

_CALLS_A_POLL = 1024


class Run(Protocol):
    """What takes iterations (OfflineRun does)."""

    def feed(self, iteration: int, seconds: float) -> Any:
        """The next iteration's time."""

    def pattern_changed(self, iteration: int) -> Any:
        """Other work from there on."""


def dumped_iterations(dump: Dump) -> Iterator[Iteration]:
    """The iterations that the calls of a dump show, in the order in which they are found; numbers are the clock's."""
    clock = IterationClock()
    starts = np.append(dump.gaps, len(dump.records))
    begin = 0
    for end in np.unique(starts[(starts > 0) & (starts <= len(dump.records))]).tolist():
        for at in range(begin, end, _CALLS_A_POLL):
            kept = top_level(dump.records[at : min(at + _CALLS_A_POLL, end)])
            yield from clock.push(symbols(kept), kept["t_ns"].astype(np.int64))
        begin = end
        if end < len(dump.records):
            clock.gap()


def feed_dump(run: Run, dump: Dump) -> None:
    """Find the iterations in the calls and feed them; their numbers are the clock's."""
    pattern = 0
    for iteration in dumped_iterations(dump):
        if iteration.pattern != pattern:
            pattern = iteration.pattern
            run.pattern_changed(iteration.index)
        if iteration.seconds > 0:
            run.feed(iteration.index, iteration.seconds)
