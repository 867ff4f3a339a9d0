"""How often detection reaches all that is asked: python -m greyhound.bench.seeds [--first SEED] [--count N].

A set of 499 series has some fifty fail-slows and four hundred healthy jobs, so one seed more or less decides a worst
value; over many seeds it shows how often each line is met. One process, about ten seconds a seed.
"""

import argparse
import sys
from collections.abc import Iterable
from statistics import median

from greyhound.bench.detection import figures
from greyhound.bench.output import Measured
from greyhound.bench.verdicts import verdicts_of

_FIRST, _COUNT = 92001, 20


def table(by_seed: Iterable[list[Measured]]) -> str:
    """Each figure over the seeds, and in how many of them all were met."""
    rows = list(by_seed)
    lines = ["| figure | asked | median seed | worst seed | met in seeds |", "|---|---|---|---|---|"]
    for same in zip(*rows, strict=True):
        more = same[0].better == "more"
        worst = (min if more else max)(figure.value for figure in same)
        asked = f"{'at least' if more else 'at most'} {same[0].target:g} {same[0].unit}".rstrip()
        met = sum(figure.met for figure in same)
        middle = median(figure.value for figure in same)
        lines.append(f"| {same[0].name} | {asked} | {middle:.4g} | {worst:.4g} | {met} of {len(rows)} |")
    whole = sum(all(figure.met for figure in row) for row in rows)
    return "\n".join([*lines, f"| **all of it** | | | | {whole} of {len(rows)} |"])


def main(arguments: list[str] | None = None) -> int:
    """Score the seeds one after the other and print the table; 0 whatever was measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=_FIRST, metavar="SEED")
    parser.add_argument("--count", type=int, default=_COUNT, metavar="N")
    options = parser.parse_args(arguments)
    if options.count < 1:
        parser.error("--count must be 1 or more")
    by_seed = []
    for seed in range(options.first, options.first + options.count):
        by_seed.append(figures(verdicts_of(seed, processes=1)))
        missed = "; ".join(figure.sentence() for figure in by_seed[-1] if not figure.met)
        print(f"seed {seed}: {missed or 'all met'}", file=sys.stderr, flush=True)
    print(table(by_seed), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
