"""A report as a table for people: a line a run, written as it comes, however many there are."""

from collections.abc import Iterable, Iterator, Sequence

from rich.cells import cell_len, set_cell_size

from greyhound.report.build import Attempt, Totals
from greyhound.report.groups import Group
from greyhound.report.records import EpisodeRecord
from greyhound.slurm.durations import print_duration

_GAP = "  "
_RIGHT = ">"
# Column, width and side; a longer text moves the rest of its line, but names are cut.
_RUNS = (
    ("job", 12, ""),
    ("user", 10, ""),
    ("name", 20, ""),
    ("state", 12, ""),
    ("elapsed", 11, _RIGHT),
    ("iter.", 8, _RIGHT),
    ("fail-slows", 11, _RIGHT),
    ("worst", 6, _RIGHT),
    ("lost", 10, _RIGHT),
    ("GPU h", 9, _RIGHT),
    ("JCT", 6, _RIGHT),
)
_GROUP_HEADS = ("jobs", "fail-slows", "slow for", "worst", "lost", "GPU h")
_KEY_WIDTH = 40
_LONGEST_S = 1e11


def printable(text: str, limit: int = 40) -> str:
    """Foreign text for a terminal: no control characters, no reordering of the line, cut at ``limit`` cells."""
    clean = text[: 2 * limit] if text.isascii() and text.isprintable() else _clean(text[: 4 * limit])
    return clean if cell_len(clean) <= limit else set_cell_size(clean, limit - 1).rstrip() + "…"


def _clean(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _line(cells: Sequence[str], widths: Sequence[int], sides: Sequence[str]) -> str:
    padded = []
    for cell, width, side in zip(cells, widths, sides, strict=True):
        blank = " " * max(0, width - (len(cell) if cell.isascii() else cell_len(cell)))
        padded.append(blank + cell if side == _RIGHT else cell + blank)
    return _GAP.join(padded).rstrip()


def _ratio(value: float | None) -> str:
    return "" if not value else f"{value:.2f}x"


def _duration(seconds: float) -> str:
    return print_duration(min(seconds, _LONGEST_S))


def _cells(attempt: Attempt) -> list[str]:
    run = attempt.run
    watched = attempt.monitored
    return [
        str(run.job) + (f" #{attempt.restart}" if attempt.restart else ""),
        printable(run.user, 10),
        printable(run.name, 20),
        printable(run.state, 12) if attempt.accounted else "(record)",
        _duration(run.elapsed_s),
        str(attempt.iterations) if watched else "",
        str(len(attempt.episodes)) if watched else "unmonitored" if run.start_s else "-",
        _ratio(max((episode.slowdown for episode in attempt.episodes), default=None)),
        _duration(attempt.lost_s) if watched else "",
        f"{attempt.gpu_hours_lost:.2f}" if watched else "",
        _ratio(attempt.jct_slowdown),
    ]


def _episode_text(episode: EpisodeRecord) -> str:
    where = " ".join(part for part in (episode.node, episode.bus, episode.peer) if part)
    lasted = _duration(episode.duration_s) if episode.duration_s is not None else "open"
    also = f"(also {', '.join(episode.also)})" if episode.also else ""
    detail = " ".join(part for part in (episode.kind, where, episode.cause, also, *episode.actions) if part)
    return printable(f"{episode.id} at {episode.onset}, {lasted}, {_ratio(episode.slowdown)} {detail}".rstrip(), 110)


def runs_head() -> list[str]:
    """The first lines of a table of runs."""
    heads, widths, sides = zip(*_RUNS, strict=True)
    return [_line(heads, widths, sides), _GAP.join("-" * width for width in widths)]


def runs_table(attempts: Iterable[Attempt]) -> Iterator[str]:
    """A line a run, a line below it for each fail-slow."""
    _, widths, sides = zip(*_RUNS, strict=True)
    indent = " " * (widths[0] + len(_GAP))
    for attempt in attempts:
        yield _line(_cells(attempt), widths, sides)
        for episode in attempt.episodes:
            yield indent + _episode_text(episode)
        if named := sorted({name for step in attempt.steps for name in step.components}):
            yield indent + printable(f"beside fail-slows: {', '.join(named)}", 110)


def groups_table(groups: Sequence[Group], by: str) -> Iterator[str]:
    """A line a group."""
    rows = [[by, *_GROUP_HEADS]]
    for row in groups:
        cells = [printable(row.key, _KEY_WIDTH), str(len(row.jobs)), str(row.fail_slows), _duration(row.slow_s)]
        rows.append([*cells, _ratio(row.worst), _duration(row.lost_s), f"{row.gpu_hours_lost:.2f}"])
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    sides = ["", *(_RIGHT for _ in _GROUP_HEADS)]
    for place, row_cells in enumerate(rows):
        yield _line(row_cells, widths, sides)
        if place == 0:
            yield _GAP.join("-" * width for width in widths)


def totals_line(totals: Totals) -> str:
    """The last line."""
    killed = f" ({totals.killed} killed)" if totals.killed else ""
    unknown = f", {totals.not_accounted} known from their records alone" if totals.not_accounted else ""
    return (
        f"{totals.jobs} jobs, {totals.attempts} runs: {totals.monitored} monitored{killed}, {totals.unmonitored} "
        f"unmonitored, {totals.not_started} never started{unknown}; {totals.fail_slows} fail-slows, "
        f"{_duration(totals.lost_s)} lost, {totals.gpu_hours_lost:.2f} GPU-hours"
    )
