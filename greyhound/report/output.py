"""A report as a table for people, JSON or CSV for programs."""

import csv
import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import IO, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from greyhound.report.build import Attempt, Totals
from greyhound.report.groups import Group
from greyhound.report.records import EpisodeRecord
from greyhound.slurm.durations import print_duration

VERSION = 1
_RUN_COLUMNS = (
    *("job", "restart", "user", "account", "partition", "name", "state", "start", "elapsed_s", "nodes", "gpus"),
    *("monitored", "why_not", "iterations", "healthy_s", "fail_slows", "lost_s", "gpu_hours_lost", "jct_slowdown"),
    *("worst", "comment"),
)
_GROUP_COLUMNS = ("key", "jobs", "fail_slows", "slow_s", "worst", "lost_s", "gpu_hours_lost")


def _time(at_s: float | None) -> str | None:
    return None if at_s is None else datetime.fromtimestamp(at_s, UTC).isoformat(timespec="seconds")


def _rounded(value: float | None, digits: int = 3) -> float | None:
    return None if value is None else round(value, digits)


def episode_row(episode: EpisodeRecord) -> dict[str, Any]:
    """One fail-slow for programs."""
    row = {**vars(episode), "onset_time": _time(episode.onset_s), "actions": list(episode.actions)}
    del row["onset_s"]
    return row


def attempt_row(attempt: Attempt) -> dict[str, Any]:
    """One run of a job for programs; what isn't known is null."""
    run = attempt.run
    healthy_s = next((step.healthy_s for step in attempt.steps if step.healthy_s > 0), None)
    return {
        "job": str(run.job),
        "raw_job": run.raw_id,
        "restart": attempt.restart,
        "user": run.user,
        "account": run.account,
        "partition": run.partition,
        "name": run.name,
        "state": run.state,
        "exit_code": run.exit_code,
        "submit": _time(run.submit_s),
        "start": _time(run.start_s),
        "end": _time(run.end_s),
        "elapsed_s": run.elapsed_s,
        "nodes": list(run.nodes),
        "gpus": run.gpus,
        "monitored": attempt.monitored,
        "why_not": attempt.why_not or None,
        "steps": [f"{step.name.step}" for step in attempt.steps],
        "iterations": attempt.iterations if attempt.monitored else None,
        "healthy_s": _rounded(healthy_s, 6),
        "fail_slows": len(attempt.episodes),
        "worst": max((episode.slowdown for episode in attempt.episodes), default=None),
        "lost_s": _rounded(attempt.lost_s) if attempt.monitored else None,
        "gpu_hours_lost": _rounded(attempt.gpu_hours_lost, 6) if attempt.monitored else None,
        "jct_slowdown": _rounded(attempt.jct_slowdown, 4),
        "comment": run.comment or None,
        "episodes": [episode_row(episode) for episode in attempt.episodes],
    }


def group_row(group: Group) -> dict[str, Any]:
    """One group for programs."""
    return {**vars(group), "jobs": len(group.jobs), "lost_s": _rounded(group.lost_s), "slow_s": _rounded(group.slow_s)}


def totals_row(totals: Totals) -> dict[str, Any]:
    """The sums for programs."""
    return {**vars(totals), "lost_s": _rounded(totals.lost_s), "gpu_hours_lost": _rounded(totals.gpu_hours_lost, 6)}


def write_json(out: IO[str], rows: Iterable[dict[str, Any]], totals: Totals) -> None:
    """One object: version, rows, totals. Rows are written as they come."""
    out.write(f'{{"v":{VERSION},"rows":[')
    for number, row in enumerate(rows):
        out.write(("," if number else "") + "\n" + json.dumps(row, ensure_ascii=False, allow_nan=False))
    out.write('\n],"totals":' + json.dumps(totals_row(totals), ensure_ascii=False) + "}\n")


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        return " ".join(map(str, value))
    # A spreadsheet takes a text that begins so for a formula.
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@") else value


def write_csv(out: IO[str], rows: Iterable[dict[str, Any]], columns: Iterable[str]) -> None:
    """Rows with a header."""
    writer = csv.writer(out, lineterminator="\n")
    names = list(columns)
    writer.writerow(names)
    for row in rows:
        writer.writerow([_cell(row[name]) for name in names])


def columns(by: str) -> tuple[str, ...]:
    """The columns of the CSV."""
    return _RUN_COLUMNS if by == "job" else _GROUP_COLUMNS


def printable(text: str, limit: int = 40) -> str:
    """Foreign text for a terminal: no control characters, no reordering of the line, cut at ``limit``."""
    clean = "".join(letter if letter.isprintable() else "?" for letter in text)
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


def _ratio(value: float | None) -> str:
    return "" if not value else f"{value:.2f}x"


def _attempt_cells(attempt: Attempt) -> list[Text]:
    run = attempt.run
    watched = attempt.monitored
    cells = [
        str(run.job) + (f" #{attempt.restart}" if attempt.restart else ""),
        printable(run.user, 12),
        printable(run.name, 24),
        run.state,
        print_duration(run.elapsed_s),
        str(attempt.iterations) if watched else "",
        str(len(attempt.episodes)) if watched else "unmonitored" if run.start_s else "-",
        _ratio(max((episode.slowdown for episode in attempt.episodes), default=None)),
        print_duration(attempt.lost_s) if watched else "",
        f"{attempt.gpu_hours_lost:.2f}" if watched else "",
        _ratio(attempt.jct_slowdown),
    ]
    return [Text(cell) for cell in cells]


def attempts_table(attempts: Iterable[Attempt]) -> Table:
    """A line a run, a line below it for each fail-slow."""
    table = Table("job", "user", "name", "state", "elapsed", "iter.", "fail-slows", "worst", "lost", "GPU h", "JCT")
    for attempt in attempts:
        table.add_row(*_attempt_cells(attempt))
        for episode in attempt.episodes:
            table.add_row("", "", Text(_episode_text(episode)), style="dim")
    return table


def _episode_text(episode: EpisodeRecord) -> str:
    where = " ".join(part for part in (episode.node, episode.bus, episode.peer) if part)
    lasted = print_duration(episode.duration_s) if episode.duration_s is not None else "open"
    detail = " ".join(part for part in (episode.kind, where, episode.cause, *episode.actions) if part)
    return printable(f"{episode.id} at {episode.onset}, {lasted}, {_ratio(episode.slowdown)} {detail}".rstrip(), 80)


def groups_table(groups: Iterable[Group], by: str) -> Table:
    """A line a group."""
    table = Table(by, "jobs", "fail-slows", "slow for", "worst", "lost", "GPU h")
    for row in groups:
        cells = [printable(row.key, 60), str(len(row.jobs)), str(row.fail_slows), print_duration(row.slow_s)]
        cells += [_ratio(row.worst), print_duration(row.lost_s), f"{row.gpu_hours_lost:.2f}"]
        table.add_row(*(Text(cell) for cell in cells))
    return table


def print_totals(console: Console, totals: Totals) -> None:
    """The last lines of the table form."""
    console.print(
        f"{totals.jobs} jobs, {totals.attempts} runs: {totals.monitored} monitored, {totals.unmonitored} unmonitored, "
        f"{totals.not_started} never started; {totals.fail_slows} fail-slows, {print_duration(totals.lost_s)} lost, "
        f"{totals.gpu_hours_lost:.2f} GPU-hours",
        highlight=False,
        soft_wrap=True,
    )
