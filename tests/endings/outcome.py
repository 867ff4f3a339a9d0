"""One ending, watched or not, and what many come to: exit codes, what was left, how much later srun came back."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.endings.bed import Bed
from tests.endings.ways import Way, ready


@dataclass(frozen=True)
class Ending:
    """`end_s`: from the end of the last task to srun's return."""

    code: int
    end_s: float
    state: str


def end_once(bed: Bed, way: Way, watched: bool) -> Ending:
    """Start a step, end it this way, and see that nothing of ours is left. AssertionError where something is."""
    with way.begin(bed, watched) as step:
        ready(way, step)
        job = step.find_job()
        way.act(step)
        gone_s = step.gone_s(way.waits_s)
        code = step.wait(way.waits_s)
        state = bed.sandbox.wait(job)
        step.assert_nothing_left()
        return Ending(code, step.returned_s - gone_s, state)


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    way: str
    steps: int
    codes: list[int]
    codes_without: list[int]
    delay_ms: float | None
    bad_nodes: list[str]


def summarise(way: Way, watched: Sequence[Ending], bare: Sequence[Ending], bad_nodes: list[str]) -> Row:
    delays = [1000 * (one.end_s - other.end_s) for one, other in zip(watched, bare, strict=True)]
    return Row(
        way.name,
        len(watched),
        sorted({ending.code for ending in watched}),
        sorted({ending.code for ending in bare}),
        round(statistics.median(delays), 1) if way.measured else None,
        bad_nodes,
    )


def keep(path: Path, row: Row) -> list[Row]:
    """Add a row to those of earlier runs, by its name; all of them."""
    rows = {one["way"]: one for one in json.loads(path.read_text())} if path.exists() else {}
    rows[row.way] = asdict(row)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(list(rows.values()), indent=1) + "\n")
    return [Row(**one) for one in rows.values()]


PAGE = """# How steps end under the watch

Written by `make scenarios` (tests/scenarios/test_endings.py); not to be edited. Steps of two nodes with a small
training over the stand-in, Slurm {release}, each beside the same step without `--greyhound`. In all {steps} watched
steps nothing of ours was left: no process, no file or socket in /dev/shm. Delay: the time from the end of the last
task to srun's return, how much more it is with us, median over the pairs.

| ended by | steps | exit codes with us | without | drained nodes | delay, ms |
|---|---|---|---|---|---|
{rows}
"""


def _codes(codes: list[int]) -> str:
    return ", ".join(map(str, codes))


def _line(row: Row) -> str:
    delay = "not comparable" if row.delay_ms is None else f"{row.delay_ms:+.0f}"
    cells = [row.way, str(row.steps), _codes(row.codes), _codes(row.codes_without), str(len(row.bad_nodes)), delay]
    return f"| {' | '.join(cells)} |"


def write_page(path: Path, rows: Sequence[Row], release: str) -> None:
    """The page, whole, from all rows."""
    lines = "\n".join(map(_line, rows))
    path.write_text(PAGE.format(release=release, steps=sum(row.steps for row in rows), rows=lines))
