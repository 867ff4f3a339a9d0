"""`greyhound report`: fail-slows of many jobs, joined with Slurm's accounting."""

import contextlib
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import IO

import click
from rich.console import Console

from greyhound.control.lookup import record_roots
from greyhound.report import output
from greyhound.report.build import Attempt, Totals, attempts
from greyhound.report.groups import KEYS, group
from greyhound.report.records import StepRecord, steps_of
from greyhound.slurm import jobid
from greyhound.slurm.client import SlurmError
from greyhound.slurm.durations import TimeTextError, parse_typed_moment
from greyhound.slurm.nodelist import NodeListError, expand
from greyhound.slurm.sacct import Filter, read_runs

PROBLEMS_SHOWN = 10
INCOMPLETE = 1
_MOMENT = "%Y-%m-%dT%H:%M:%S"


def _moment(ctx: click.Context, param: click.Parameter, text: str | None) -> str:
    if text is None:
        return ""
    try:
        return parse_typed_moment(text, datetime.now()).strftime(_MOMENT)
    except TimeTextError as error:
        raise click.BadParameter(str(error)) from None


def _job_ids(ctx: click.Context, param: click.Parameter, text: str | None) -> str:
    try:
        return ",".join(str(jobid.parse(part.strip())) for part in (text or "").split(",") if part.strip())
    except jobid.JobIdError as error:
        raise click.BadParameter(str(error)) from None


def _node_list(ctx: click.Context, param: click.Parameter, text: str | None) -> str:
    try:
        expand(text or "")
    except NodeListError as error:
        raise click.BadParameter(str(error)) from None
    return text or ""


class _Source:
    """Runs with their records; keeps count while they pass, and why accounting stopped if it did."""

    def __init__(self, chosen: Filter, roots: list[Path]) -> None:
        self._chosen = chosen
        self._roots = roots
        self.totals = Totals()
        self.failure = ""

    def _steps(self, job: str, running: bool) -> list[StepRecord]:
        for root in self._roots:
            found = steps_of(root, job, running)
            if found:
                return found
        return []

    def attempts(self) -> Iterator[Attempt]:
        """All of them; a failure of sacct's ends the list and is kept."""
        runs = []
        try:
            for run in read_runs(self._chosen):
                runs.append(run)
        except SlurmError as error:
            self.failure = str(error)
        for attempt in attempts(runs, self._steps):
            self.totals.add(attempt)
            yield attempt


def _write(source: _Source, by: str, form: str, out: IO[str]) -> None:
    if form == "table":
        console = Console(file=out, width=None if out.isatty() else 160)
        table = (
            output.attempts_table(source.attempts())
            if by == "job"
            else output.groups_table(group(source.attempts(), by), by)
        )
        console.print(table)
        output.print_totals(console, source.totals)
        return
    rows = (
        map(output.attempt_row, source.attempts())
        if by == "job"
        else map(output.group_row, group(source.attempts(), by))
    )
    if form == "json":
        output.write_json(out, rows, source.totals)
    else:
        output.write_csv(out, rows, output.columns(by))


def _tell(source: _Source) -> None:
    problems = source.totals.problems
    for problem in problems[:PROBLEMS_SHOWN]:
        click.echo(f"greyhound: {problem}", err=True)
    if len(problems) > PROBLEMS_SHOWN:
        click.echo(f"greyhound: and {len(problems) - PROBLEMS_SHOWN} more problems (all in --format json)", err=True)
    if source.failure:
        click.echo(f"greyhound: the report is incomplete: {source.failure}", err=True)


@contextlib.contextmanager
def _opened(path: Path | None) -> Iterator[IO[str]]:
    if path is None:
        yield sys.stdout
        return
    try:
        with path.open("w", encoding="utf-8") as file:
            yield file
    except OSError as error:
        raise click.ClickException(f"{path} can't be written: {error.strerror}") from None


@click.command("report")
@click.option("--jobs", callback=_job_ids, metavar="ID[,ID...]", help="These jobs alone.")
@click.option("--user", default="", help="Of this user (several with commas).")
@click.option("--all-users", is_flag=True, help="Of everybody whom Slurm lets you see.")
@click.option("--account", default="", help="Of this account.")
@click.option("--partition", default="", help="In this partition.")
@click.option("--since", callback=_moment, metavar="TIME", help="2026-11-30, now-7days, today ... (default: midnight).")
@click.option("--until", callback=_moment, metavar="TIME", help="The same forms.")
@click.option("--nodes", callback=_node_list, metavar="NODELIST", help="That ran on any of these nodes.")
@click.option(
    "--by", type=click.Choice(["job", *KEYS]), default="job", show_default=True, help="What a row stands for."
)
@click.option("--format", "form", type=click.Choice(["table", "json", "csv"]), default="table", show_default=True)
@click.option("-o", "--output", "path", type=click.Path(dir_okay=False, path_type=Path), help="Write to a file.")
@click.option("--record-dir", type=click.Path(path_type=Path, file_okay=False), help="Look here for records alone.")
def command(
    jobs: str,
    user: str,
    all_users: bool,
    account: str,
    partition: str,
    since: str,
    until: str,
    nodes: str,
    by: str,
    form: str,
    path: Path | None,
    record_dir: Path | None,
) -> None:
    """What was slow in which jobs, for how long, and what it cost.

    One row a run of a job: requeued runs count each, jobs without a record are listed as unmonitored. Exit code 1 if
    accounting could not be read to its end.
    """
    chosen = Filter(jobs, user, account, partition, nodes, since, until, all_users)
    source = _Source(chosen, record_roots(record_dir))
    with _opened(path) as out:
        _write(source, by, form, out)
    _tell(source)
    sys.exit(INCOMPLETE if source.failure else 0)
