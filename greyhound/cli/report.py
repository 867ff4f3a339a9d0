"""`greyhound report`: fail-slows of many jobs, joined with Slurm's accounting."""

import contextlib
import gc
import getpass
import io
import os
import sys
from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import IO

import click

from greyhound.cli.times import MOMENT, moment
from greyhound.control.lookup import record_roots
from greyhound.report import output
from greyhound.report.build import Attempt
from greyhound.report.fallback import Wanted
from greyhound.report.groups import KEYS, merged, sums
from greyhound.report.source import Source
from greyhound.report.table import groups_table, printable, runs_head, runs_table, totals_line
from greyhound.slurm import jobid
from greyhound.slurm.nodelist import NodeListError, expand
from greyhound.slurm.sacct import SILENCE_S, Filter

PROBLEMS_SHOWN = 10
INCOMPLETE = 1


def _epoch_s(text: str) -> float | None:
    return datetime.strptime(text, MOMENT).timestamp() if text else None


def _wanted(chosen: Filter) -> Wanted:
    """What the records can tell of a filter. Nothing named means what it means to sacct: one's own, since midnight."""
    users = {name for name in chosen.user.split(",") if name}
    if not users and not chosen.all_users and os.geteuid() != 0:
        users = {getpass.getuser()}
    since_s = _epoch_s(chosen.since)
    if since_s is None and not chosen.jobs:
        since_s = datetime.now().replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
    return Wanted(frozenset(users), frozenset(expand(chosen.nodes)), since_s, _epoch_s(chosen.until))


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


def _table_part(attempts: Iterable[Attempt]) -> str:
    return "".join(f"{line}\n" for line in runs_table(attempts))


def _json_part(attempts: Iterable[Attempt]) -> str:
    return output.json_rows(map(output.attempt_row, attempts))


def _csv_part(attempts: Iterable[Attempt]) -> str:
    return output.csv_rows(map(output.attempt_row, attempts), output.columns("job"))


def _write_runs(source: Source, form: str, out: IO[str]) -> None:
    if form == "json":
        output.write_json(out, source.parts(_json_part), source.totals, lambda: source.failure)
    elif form == "csv":
        out.write(output.csv_header(output.columns("job")))
        out.writelines(source.parts(_csv_part))
    else:
        out.writelines(f"{line}\n" for line in runs_head())
        out.writelines(source.parts(_table_part))
        out.write(f"{totals_line(source.totals)}\n")


def _write_groups(source: Source, by: str, form: str, out: IO[str]) -> None:
    groups = merged(source.parts(partial(sums, by=by)))
    rows = map(output.group_row, groups)
    if form == "json":
        output.write_json(out, [output.json_rows(rows)], source.totals, lambda: source.failure)
    elif form == "csv":
        out.write(output.csv_header(output.columns(by)) + output.csv_rows(rows, output.columns(by)))
    else:
        out.writelines(f"{line}\n" for line in groups_table(groups, by))
        out.write(f"{totals_line(source.totals)}\n")


def _write(source: Source, by: str, form: str, out: IO[str]) -> None:
    if by == "job":
        _write_runs(source, form, out)
    else:
        _write_groups(source, by, form, out)


def _tell(source: Source) -> None:
    totals = source.totals
    for problem in totals.problems[:PROBLEMS_SHOWN]:
        click.echo(f"greyhound: {printable(problem, 400)}", err=True)
    if totals.problem_count > PROBLEMS_SHOWN:
        click.echo(
            f"greyhound: and {totals.problem_count - PROBLEMS_SHOWN} more problems (see --format json)", err=True
        )
    if source.failure:
        click.echo(f"greyhound: the report is incomplete: {source.failure}", err=True)
    if totals.not_accounted:
        click.echo(
            f"greyhound: {totals.not_accounted} runs are shown as their records have them: no state, name, account "
            "or GPUs",
            err=True,
        )


@contextlib.contextmanager
def _opened(path: Path | None) -> Iterator[IO[str]]:
    if path is None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")  # a terminal may not know a job's name's letters
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
@click.option("--since", callback=moment, metavar="TIME", help="2026-11-30, now-7days, today ... (default: midnight).")
@click.option("--until", callback=moment, metavar="TIME", help="The same forms.")
@click.option("--nodes", callback=_node_list, metavar="NODELIST", help="That ran on any of these nodes.")
@click.option(
    "--by", type=click.Choice(["job", *KEYS]), default="job", show_default=True, help="What a row stands for."
)
@click.option("--format", "form", type=click.Choice(["table", "json", "csv"]), default="table", show_default=True)
@click.option("-o", "--output", "path", type=click.Path(dir_okay=False, path_type=Path), help="Write to a file.")
@click.option("--record-dir", type=click.Path(path_type=Path, file_okay=False), help="Look here for records alone.")
@click.option(
    "--patience",
    type=click.FloatRange(min=0.1),
    default=SILENCE_S,
    show_default=True,
    metavar="SECONDS",
    help="Give sacct up when it says nothing for so long.",
)
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
    patience: float,
) -> None:
    """What was slow in which jobs, for how long, and what it cost.

    One row a run of a job: requeued runs count each, jobs without a record are listed as unmonitored. Where sacct can't
    be asked, the records are shown as they are. Exit code 1 if accounting could not be read to its end, or doesn't know
    a job that was named. What each column means: docs/report.md.
    """
    if since and until and since > until:
        raise click.UsageError(f"--since ({since}) lies after --until ({until})")
    chosen = Filter(jobs, user, account, partition, nodes, since, until, all_users)
    source = Source(chosen, record_roots(record_dir), _wanted(chosen), patience)
    gc.disable()  # a hundred thousand rows in memory, and no cycles among them
    with _opened(path) as out:
        _write(source, by, form, out)
    _tell(source)
    sys.exit(INCOMPLETE if source.failure else 0)
