"""How well a method's episodes fit a labelled series: the paper's verdict a series, and how early and exact it was."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from greyhound.testdata.faults import Truth

EARLY = 5
"""A report belongs to a fail-slow if its onset lies at most so many iterations before it, or inside it."""


class Reported(Protocol):
    """What a method says; iterations are those of the series."""

    @property
    def onset(self) -> int: ...
    @property
    def reported(self) -> int: ...
    @property
    def end(self) -> int | None: ...
    @property
    def slowdown(self) -> float: ...


@dataclass(frozen=True)
class SeriesScore:
    """One series; the tuples have an entry for each fail-slow that was found, in iterations and shares.

    ``end_late`` only where the fail-slow has an end; one that is never reported counts as the end of the series.
    """

    slow: bool
    said_slow: bool
    missed: int
    stray: int
    onset_error: tuple[int, ...] = ()
    delay: tuple[int, ...] = ()
    slowdown_error: tuple[float, ...] = ()
    end_late: tuple[int, ...] = ()


@dataclass(frozen=True)
class Score:
    """A set of series; rates are shares of series, the rest over all fail-slows found (nan where none was)."""

    series: int
    accuracy: float
    false_positive_rate: float
    false_negative_rate: float
    false_alarms: int
    wrong: int
    missed: int
    stray: int
    found: list[SeriesScore] = field(repr=False)

    def values(self, name: str) -> list[float]:
        """All entries of a tuple of SeriesScore."""
        return [float(value) for score in self.found for value in getattr(score, name)]

    def quantile(self, name: str, share: float) -> float:
        """A quantile of the absolute values of a tuple of SeriesScore; 1.0 is the worst."""
        values = np.abs(self.values(name))
        return float(np.quantile(values, share)) if len(values) else float("nan")


def score_series(truth: Sequence[Truth], reports: Sequence[Reported], length: int) -> SeriesScore:
    """Compare the reports on a series of ``length`` iterations with what is true of it.

    A slow series counts as found if one of its fail-slows was. Of the reports that belong to one fail-slow the first
    gives onset and delay, the longest the slow-down, the last the end (several are no error by themselves: a method
    may see two levels in one). Reports that belong to none are stray.
    """
    matched = [[row for row in reports if belongs(row, real, length)] for real in truth]
    found = [(real, rows) for real, rows in zip(truth, matched, strict=True) if rows]
    stray = sum(all(row not in rows for rows in matched) for row in reports)
    late = [
        (length if rows[-1].end is None else rows[-1].end) - real.end for real, rows in found if real.end is not None
    ]
    return SeriesScore(
        slow=bool(truth),
        said_slow=bool(found) if truth else bool(reports),
        missed=len(truth) - len(found),
        stray=stray,
        onset_error=tuple(_onset_error(rows[0].onset, real) for real, rows in found),
        delay=tuple(rows[0].reported - real.onset for real, rows in found),
        slowdown_error=tuple(_longest(rows, length).slowdown / real.slowdown - 1 for real, rows in found),
        end_late=tuple(late),
    )


def belongs(report: Reported, truth: Truth, length: int) -> bool:
    """Whether a report is about this fail-slow: it began and was known in time to be so."""
    end = length if truth.end is None else truth.end
    return truth.begin - EARLY <= report.onset < end and truth.begin <= report.reported < end


def _onset_error(onset: int, truth: Truth) -> int:
    """Iterations off; while a ramp or a staircase rises towards the bar each iteration is a right answer."""
    return onset - min(max(onset, truth.begin), truth.onset)


def _longest(reports: Sequence[Reported], length: int) -> Reported:
    return max(reports, key=lambda row: (length if row.end is None else row.end) - row.onset)


def score_set(scores: Iterable[SeriesScore]) -> Score:
    """Put the series of a set together, as the paper's Tables 3 and 4 do."""
    rows = list(scores)
    slow, healthy = [row for row in rows if row.slow], [row for row in rows if not row.slow]
    false_alarms = sum(row.said_slow for row in healthy)
    misses = sum(not row.said_slow for row in slow)
    return Score(
        series=len(rows),
        accuracy=_share(len(rows) - false_alarms - misses, len(rows)),
        false_positive_rate=_share(false_alarms, len(healthy)),
        false_negative_rate=_share(misses, len(slow)),
        false_alarms=false_alarms,
        wrong=false_alarms + misses,
        missed=sum(row.missed for row in rows),
        stray=sum(row.stray for row in slow),
        found=[row for row in slow if row.delay],
    )


def _share(count: int, of: int) -> float:
    return count / of if of else float("nan")
