"""How often the iteration clock finds the true period of drawn streams: python -m greyhound.bench.period_fuzz."""

import argparse
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from greyhound.bench.output import Measured, report
from greyhound.detect.period import IterationClock
from greyhound.testdata.drawn import Drawn, draw

_FIRST_SEED, _STREAMS = 1_000, 200


@dataclass(frozen=True)
class Outcome:
    """What the clock made of a stream.

    found: the period at the end (None: not locked). wrong: iterations that it returned with a wrong period, short:
    how many of these with a part of the true one. first: how many iterations had passed at the first right one.
    """

    kind: str
    true: int
    found: int | None
    wrong: int
    short: int
    first: int | None

    @property
    def right(self) -> bool:
        """Whether the period at the end is exact."""
        return self.found == self.true


def follow(drawn: Drawn) -> Outcome:
    """Push a drawn stream through a clock as an analyzer does."""
    clock, stream = IterationClock(), drawn.stream
    true, wrong, short, first = drawn.period, 0, 0, None
    for at in range(0, len(stream.symbols), drawn.pushed):
        until = at + drawn.pushed
        told = clock.push(stream.symbols[at:until], stream.t_ns[at:until])
        if told and clock.period != true:
            wrong += len(told)
            short += len(told) if (clock.period or 0) < true else 0
        elif told and first is None:
            first = int(np.searchsorted(stream.ends, min(until, len(stream.symbols)) - 1, side="right"))
    return Outcome(drawn.kind, true, clock.period, wrong, short, first)


def outcomes(seeds: Iterable[int]) -> list[Outcome]:
    """Of the streams of these numbers."""
    return [follow(draw(seed)) for seed in seeds]


def measure(first: int = _FIRST_SEED, streams: int = _STREAMS) -> list[Measured]:
    """Shares of the drawn streams; those without a lock at the end are counted apart from the wrong ones."""
    results = outcomes(range(first, first + streams))
    firsts = [row.first for row in results if row.first is not None]
    share = 100 / len(results)
    wrong = [row for row in results if not row.right and row.found is not None]
    return [
        Measured("drawn streams: wrong period at the end", share * len(wrong), "%", 0, "less"),
        Measured("no period at the end", share * sum(row.found is None for row in results), "%", 0, "less"),
        Measured(
            "a part of the period told for a while", share * sum(row.short > 0 for row in results), "%", 2, "less"
        ),
        Measured("a multiple told", share * sum(row.wrong > row.short for row in results), "%", 0, "less"),
        Measured("iterations to the first right one, median", float(np.median(firsts)), "", 5, "less"),
        Measured("the same, 95th percentile", float(np.percentile(firsts, 95)), "", 35, "less"),
    ]


def main() -> None:
    """Measure, or with --list print each stream that went wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=_FIRST_SEED, help="number of the first stream")
    parser.add_argument("--streams", type=int, default=_STREAMS, help="how many")
    parser.add_argument("--list", action="store_true", help="print each stream that went wrong instead")
    arguments = parser.parse_args()
    if not arguments.list:
        report("period_fuzz", measure(arguments.first, arguments.streams))
        return
    for seed in range(arguments.first, arguments.first + arguments.streams):
        drawn = draw(seed)
        result = follow(drawn)
        if not result.right or result.wrong:
            print(seed, result, drawn.workload, drawn.disturbances, flush=True)


if __name__ == "__main__":
    main()
