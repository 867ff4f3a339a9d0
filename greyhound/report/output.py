"""A report as JSON or CSV for programs; the table for people is table.py."""

import csv
import io
import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import IO, Any

from greyhound.report.build import Attempt, Totals
from greyhound.report.groups import Group
from greyhound.report.records import EpisodeRecord

VERSION = 1
_RUN_COLUMNS = (
    *("job", "raw_job", "restart", "user", "account", "partition", "name", "state", "accounted", "start", "elapsed_s"),
    *("nodes", "gpus", "monitored", "why_not", "record", "iterations", "healthy_s", "fail_slows", "lost_s"),
    *("gpu_hours_lost", "jct_slowdown", "worst", "comment"),
)
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_GROUP_COLUMNS = ("key", "jobs", "fail_slows", "slow_s", "worst", "lost_s", "gpu_hours_lost")


def _time(at_s: float | None) -> str | None:
    return None if at_s is None else datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds")


def _rounded(value: float | None, digits: int = 3) -> float | None:
    return None if value is None else round(value, digits)


def episode_row(episode: EpisodeRecord) -> dict[str, Any]:
    """One fail-slow for programs."""
    row = {**episode._asdict(), "onset_time": _time(episode.onset_s)}  # its tuples are lists in JSON
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
        "accounted": attempt.accounted,
        "exit_code": run.exit_code,
        "submit": _time(run.submit_s),
        "start": _time(run.start_s),
        "end": _time(run.end_s),
        "elapsed_s": run.elapsed_s,
        "nodes": list(run.nodes),
        "gpus": run.gpus,
        "monitored": attempt.monitored,
        "why_not": attempt.why_not or None,
        "record": attempt.record or None,
        "steps": [f"{step.name.step}" for step in attempt.steps],
        "iterations": attempt.iterations if attempt.monitored else None,
        "healthy_s": _rounded(healthy_s, 6),
        "fail_slows": len(attempt.episodes),
        "worst": max((episode.slowdown for episode in attempt.episodes), default=None),
        "lost_s": _rounded(attempt.lost_s) if attempt.monitored else None,
        "gpu_hours_lost": _rounded(attempt.gpu_hours_lost, 6) if attempt.monitored else None,
        "jct_slowdown": _rounded(attempt.jct_slowdown, 4),
        "comment": run.comment or None,
        "components": sorted({name for step in attempt.steps for name in step.components}),
        "episodes": [episode_row(episode) for episode in attempt.episodes],
    }


def group_row(group: Group) -> dict[str, Any]:
    """One group for programs."""
    return {**vars(group), "jobs": len(group.jobs), "lost_s": _rounded(group.lost_s), "slow_s": _rounded(group.slow_s)}


def totals_row(totals: Totals) -> dict[str, Any]:
    """The sums for programs."""
    rounded = {"lost_s": _rounded(totals.lost_s), "gpu_hours_lost": _rounded(totals.gpu_hours_lost, 6)}
    return {key: value for key, value in {**vars(totals), **rounded}.items() if not key.startswith("_")}


_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False)


def json_rows(rows: Iterable[dict[str, Any]]) -> str:
    """Rows of `write_json`, a line each."""
    return ",\n".join(map(_JSON.encode, rows))


def write_json(out: IO[str], parts: Iterable[str], totals: Totals, failure: Callable[[], str] = lambda: "") -> None:
    """One object: version, rows, totals, why it is incomplete if it is. Parts of the rows are written as they come."""
    out.write(f'{{"v":{VERSION},"rows":[')
    gap = "\n"
    for part in filter(None, parts):
        out.write(gap + part)
        gap = ",\n"
    last = {"totals": totals_row(totals), "incomplete": failure() or None}
    out.write("\n]," + _JSON.encode(last)[1:] + "\n")


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        return " ".join(map(str, value))
    # A spreadsheet takes a text that begins so for a formula.
    return f"'{value}" if isinstance(value, str) and value[:1] in _FORMULA else value


def csv_rows(rows: Iterable[dict[str, Any]], columns: Iterable[str]) -> str:
    """Rows as lines, without a header."""
    text, names = io.StringIO(), list(columns)
    csv.writer(text, lineterminator="\n").writerows([_cell(row[name]) for name in names] for row in rows)
    return text.getvalue()


def csv_header(columns: Iterable[str]) -> str:
    """The first line."""
    return ",".join(columns) + "\n"


def columns(by: str) -> tuple[str, ...]:
    """The columns of the CSV."""
    return _RUN_COLUMNS if by == "job" else _GROUP_COLUMNS
