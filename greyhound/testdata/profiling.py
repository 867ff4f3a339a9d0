"""Calls of modelled ranks as they pass, and what an analyzer makes of them: own time, and the host's part in it."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Row = tuple[int, int, int, int, int, int, int, int]
"""Communicator, number, operation, bytes, peer, entry, start and end in nanoseconds."""
START_NS = 1_700_000_000_000_000_000


@dataclass(frozen=True)
class Times:
    """As in a RankProfile, an item an iteration, in seconds."""

    iteration_s: tuple[float, ...]
    own_s: tuple[float, ...]
    host_s: tuple[float, ...]
    boundary_s: tuple[float, ...]


class Recorder:
    """Collects each rank's calls."""

    def __init__(self, ranks: int) -> None:
        self._calls: list[list[tuple[int, int, int, int, int, float, float, float]]] = [[] for _ in range(ranks)]
        self._numbers: Counter[tuple[int, int]] = Counter()
        self._ends: list[Floats] = []

    def _add(self, rank: int, comm: int, op: int, size: int, peer: int, times: tuple[float, float, float]) -> None:
        number = self._numbers[comm, rank]
        self._numbers[comm, rank] += 1
        self._calls[rank].append((comm, number, op, size, peer, *times))

    def collective(
        self, comm: int, op: int, size: int, ranks: NDArray[np.int64], entry: Floats, start: Floats, end: float
    ) -> None:
        """One of several members that leave together."""
        for rank, entered, started in zip(ranks.tolist(), entry.tolist(), start.tolist(), strict=True):
            self._add(rank, comm, op, size, -1, (entered, started, float(end)))

    def transfer(
        self, comm: int, op: int, size: int, rank: int, peer: int, entry: float, start: float, end: float
    ) -> None:
        """A send or a receive of one rank."""
        self._add(rank, comm, op, size, peer, (float(entry), float(start), float(end)))

    def iteration_ends(self, at: Floats) -> None:
        """The iteration ended, for each rank at its time."""
        self._ends.append(at.copy())

    def of(self, rank: int, iterations: int, clock_s: float, timed: bool) -> tuple[list[Row], Times]:
        """The last so many iterations of a rank, on a clock that is wrong by `clock_s`."""
        ends = [float(at[rank]) for at in self._ends[-iterations - 1 :]]
        shown = [call for call in self._calls[rank] if ends[0] - 1e-12 < call[5] or call[7] > ends[0] + 1e-12]
        times = _own_times(shown, ends, timed)
        return [_row(call, clock_s, timed) for call in shown], times


def _seen(call: tuple[int, int, int, int, int, float, float, float], timed: bool) -> tuple[float, float, float]:
    """Entry, start, end; without GPU times the call returns at once."""
    return (call[5], call[6], call[7]) if timed else (call[5], call[5], call[5] + 5e-6)


def _row(call: tuple[int, int, int, int, int, float, float, float], clock_s: float, timed: bool) -> Row:
    comm, number, op, size, peer = call[:5]
    entry, start, end = (_ns(at + clock_s) for at in _seen(call, timed))
    return comm, number, op, size, peer, entry, start, end


def _ns(seconds: float) -> int:
    return START_NS + round(seconds * 1e9)


def _own_times(
    calls: list[tuple[int, int, int, int, int, float, float, float]], ends: list[float], timed: bool
) -> Times:
    """Gaps between the union of the calls, by the iteration in which they end; the first gap of one is the boundary."""
    count = len(ends) - 1
    own, host, boundary = np.zeros(count), np.zeros(count), np.zeros(count)
    until = ends[0]
    seen = -1
    for entry, start, end in sorted((_seen(call, timed) for call in calls), key=lambda times: times[1]):
        number = min(int(np.searchsorted(ends, end - 1e-9)) - 1, count - 1)
        if start > until and number >= 0:
            gap = start - until
            own[number] += gap
            host[number] += min(max(entry - until, 0.0), gap)
            if number != seen:
                boundary[number] += gap
        seen = max(seen, number)
        until = max(until, end)
    return Times(tuple(np.diff(ends).tolist()), tuple(own.tolist()), tuple(host.tolist()), tuple(boundary.tolist()))
