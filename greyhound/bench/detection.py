"""How good detection is on labelled and on real series: python -m greyhound.bench.detection [--output FILE].

Writes the page docs/detection.md: the paper's comparison methods beside ours, over several seeds, and the real series
where they are at hand (GREYHOUND_SERIES, or shared/data/series beside the repository).
"""

import argparse
import importlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

from greyhound.bench.output import Measured
from greyhound.bench.real_series import RealRow, real_rows
from greyhound.bench.verdicts import COMPARED_SEEDS, KINDS, SEEDS, THRESHOLD, WARMUP, Verdict, score, verdicts_of
from greyhound.testdata.scoring import Score, score_set

Verdicts = dict[int, list[Verdict]]
"""By seed."""

_TITLES = {"window": "sliding window", "bocd": "BOCD", "bocdv": "BOCD+V", "full": "**ours**"}
_GRADUAL = ("staircase", "ramp")
_COST_BENCHES = ("greyhound.bench.tracker", "greyhound.bench.period")
_HEAD = """# How good detection is

Written by `make detection`; don't edit. The set is `greyhound/testdata/series.py`: 392 compute and 107 communication
series in the proportions, severities and durations of the paper's Tables 3 and 4, with what real jobs do besides
(garbage collection, evaluation and checkpoint pauses of one and of several iterations, spikes alone and in clusters,
heavy tails, neighbours that resemble each other, warm-up, slow drift, steps below 10 %, optimiser steps that are longer
every few iterations), and staircases and ramps among the fail-slows. A seed makes one set; those
used here ({seeds}) weren't looked at while the tracker was developed.

Every method sees the same series, in order, with a threshold of {threshold:.0%} and {warmup} iterations of warm-up. The
three from the paper are as published (`greyhound/detect/methods/`); `greyhound detect --method` runs each on your data.

- accuracy, FPR, FNR: shares of series, as in the paper; a slow series is found if a report belongs to one of its
  fail-slows (its onset lies inside, or at most 5 iterations before the first slower iteration)
- missed, stray: fail-slows without a report (a series may have two), and reports in slow series that belong to none
- onset: iterations off, the first one at or above 10 % being right (in a ramp or a staircase each one on the way there)
- delay: iterations from then to the report; end: iterations that a fail-slow was said to last too long; slow-down:
  share off. All over the fail-slows found.
"""


def page(verdicts: Verdicts, real: list[RealRow]) -> str:
    """The whole page."""
    parts = [_HEAD.format(threshold=THRESHOLD, warmup=WARMUP, seeds=", ".join(map(str, SEEDS)))]
    for kind in KINDS:
        parts.append(_compared(verdicts, kind))
    parts += [_targets(verdicts), _real(real), _costs()]
    return "\n".join(parts)


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def _compared(verdicts: Verdicts, kind: str) -> str:
    head = ["method", "seeds", "accuracy: mean, worst", "FPR", "FNR", "missed", "stray"]
    head += ["onset: median, p95", "delay: median, p95", "slow-down: median, p95", "end: median, p95"]
    rows = []
    for method, title in _TITLES.items():
        seeds = SEEDS if method == "full" else COMPARED_SEEDS
        scores = [score(verdicts[seed], method, kind) for seed in seeds]
        rows.append([title, str(len(seeds)), *_rates(scores), *_distances(scores)])
    series = scores[0].series
    return f"\n## {kind.capitalize()}: {series} series a seed\n\n{_table(head, rows)}"


def _rates(scores: list[Score]) -> list[str]:
    accuracy = [row.accuracy for row in scores]
    return [
        f"{fmean(accuracy):.1%}, {min(accuracy):.1%}",
        f"{fmean(row.false_positive_rate for row in scores):.1%}",
        f"{fmean(row.false_negative_rate for row in scores):.1%}",
        f"{fmean(row.missed for row in scores):.1f}",
        f"{fmean(row.stray for row in scores):.1f}",
    ]


def _distances(scores: list[Score]) -> list[str]:
    """Median and 95th percentile over all seeds together."""
    return [
        _pair(scores, "onset_error", "{:.0f}"),
        _pair(scores, "delay", "{:.0f}"),
        _pair(scores, "slowdown_error", "{:.1%}"),
        _pair(scores, "end_late", "{:.0f}"),
    ]


def _pair(scores: list[Score], name: str, form: str) -> str:
    both = [together(scores).quantile(name, share) for share in (0.5, 0.95)]
    return ", ".join(form.format(value) for value in both)


def together(scores: list[Score]) -> Score:
    """Several sets as one, for quantiles over all."""
    return score_set(row for each in scores for row in each.found)


def figures(verdicts: list[Verdict]) -> list[Measured]:
    """What ours must reach on one set."""
    compute, communication = (score(verdicts, "full", kind) for kind in KINDS)
    both = together([compute, communication])
    ours = [row for row in verdicts if row.method == "full"]
    gradual = score_set(row.score for row in ours if row.shape in _GRADUAL)
    sudden = score_set(row.score for row in ours if row.shape not in _GRADUAL)
    return [
        Measured("compute: accuracy", 100 * compute.accuracy, "%", 100, "more"),
        Measured("communication: series right", communication.series - communication.wrong, "of 107", 106, "more"),
        Measured("false alarms in healthy series", compute.false_alarms + communication.false_alarms, "", 0, "less"),
        Measured("fail-slows missed", compute.missed + communication.missed, "", 1, "less"),
        Measured("staircases and ramps missed", gradual.missed, "", 0, "less"),
        Measured("onset of steps, worst", sudden.quantile("onset_error", 1.0), "iterations off", 5, "less"),
        Measured("onset of the gradual, worst", gradual.quantile("onset_error", 1.0), "iterations off", 5, "less"),
        Measured("slow-down, worst", 100 * both.quantile("slowdown_error", 1.0), "% off", 10, "less"),
        Measured("end, worst", max(both.values("end_late")), "iterations late", 15, "less"),
        Measured("delay, median", both.quantile("delay", 0.5), "iterations", 4, "less"),
        Measured("delay, 95th percentile", both.quantile("delay", 0.95), "iterations", 12, "less"),
    ]


def _targets(verdicts: Verdicts) -> str:
    by_seed = [figures(verdicts[seed]) for seed in SEEDS]
    rows = []
    for same in zip(*by_seed, strict=True):
        bound = "at least" if same[0].better == "more" else "at most"
        worst = (min if same[0].better == "more" else max)(figure.value for figure in same)
        met = sum(figure.met for figure in same)
        mean = fmean(figure.value for figure in same)
        row = [same[0].name, f"{bound} {same[0].target:g} {same[0].unit}", f"{mean:.4g}", f"{worst:.4g}"]
        rows.append([*row, f"{met} of {len(same)}"])
    return "\n## Ours against what was asked\n\n" + _table(
        ["figure", "asked", "mean", "worst seed", "met in seeds"], rows
    )


def _real(rows: list[RealRow]) -> str:
    if not rows:
        return "\n## Real runs\n\nThe recorded series weren't at hand when this page was written.\n"
    cells = [[row.name, row.expected, row.said, "yes" if row.met else "NO"] for row in rows]
    return "\n## Real runs\n\n" + _table(["series", "must say", "says", "met"], cells)


def _costs() -> str:
    rows = []
    for name in _COST_BENCHES:
        for figure in _measure(name):
            bound = "at least" if figure.better == "more" else "at most"
            row = [figure.name, f"{figure.value:.4g} {figure.unit}", f"{bound} {figure.target:g}"]
            rows.append([*row, "yes" if figure.met else "NO"])
    if not rows:
        return ""
    return "\n## What it costs\n\nOn the machine that wrote this page.\n\n" + _table(
        ["", "measured", "asked", "met"], rows
    )


def _measure(name: str) -> list[Measured]:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        return []
    measure: Callable[[], list[Measured]] = module.measure
    return measure()


def main(arguments: list[str] | None = None) -> int:
    """Measure, and write the page; 0 whatever was measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("docs/detection.md"))
    options = parser.parse_args(arguments)
    begin_s = time.monotonic()
    verdicts = {}
    for seed in SEEDS:
        verdicts[seed] = verdicts_of(seed, compare=seed in COMPARED_SEEDS)
        print(f"detection: seed {seed} done after {time.monotonic() - begin_s:.0f} s", file=sys.stderr, flush=True)
    text = page(verdicts, real_rows(THRESHOLD, WARMUP))
    options.output.write_text(text, encoding="utf-8")
    print(f"detection: wrote {options.output}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
