"""`greyhound collect`: an operator puts each ended job's line into its AdminComment."""

import json
import sys
from pathlib import Path

import click

from greyhound.cli.times import moment
from greyhound.control.lookup import record_roots
from greyhound.control.summary import is_ours
from greyhound.report.collect import Line, lines
from greyhound.report.fallback import Wanted
from greyhound.report.source import Source
from greyhound.slurm.admin_comment import AdminComments
from greyhound.slurm.client import SlurmError
from greyhound.slurm.sacct import Filter

INCOMPLETE = 1
DEFAULT_SINCE = "now-1day"


class _Collector:
    """Writes line after line; the first refusal ends it, as all others would be refused, too."""

    def __init__(self, dry_run: bool, quiet: bool) -> None:
        self._comments = AdminComments()
        self._dry_run = dry_run
        self._quiet = quiet
        self.count = {"jobs": 0, "written": 0, "already": 0, "others": 0}
        self.failure = ""

    def take(self, line: Line) -> bool:
        """One job; False once nothing more can be written."""
        self.count["jobs"] += 1
        if line.done:
            self.count["already"] += 1
        elif line.foreign:
            self._leave(line)
        else:
            return self._write(line)
        return True

    def _leave(self, line: Line) -> None:
        self.count["others"] += 1
        self._say(f"job {line.job}: another's AdminComment stays")

    def _write(self, line: Line) -> bool:
        try:
            # Somebody may have written since sacct was asked.
            if not self._dry_run and not is_ours(self._comments.read(line.job)):
                self._leave(line)
                return True
            if not self._dry_run:
                self._comments.write(line.job, line.text)
        except SlurmError as error:
            self.failure = str(error)
            return False
        self.count["written"] += 1
        self._say(f"job {line.job}: {line.text}{' (not written: --dry-run)' if self._dry_run else ''}")
        return True

    def _say(self, text: str) -> None:
        if not self._quiet:
            click.echo(text)


@click.command("collect")
@click.option("--since", callback=moment, default=DEFAULT_SINCE, show_default=True, help="Jobs that ran since then.")
@click.option("--until", callback=moment, help="The same forms: 2026-11-30, now-2hours, today ...")
@click.option("--dry-run", is_flag=True, help="Tell what would be written, write nothing.")
@click.option("--json", "as_json", is_flag=True, help="For programs: one object with the counts.")
@click.option("--record-dir", type=click.Path(path_type=Path, file_okay=False), help="Look here for records alone.")
def command(since: str, until: str, dry_run: bool, as_json: bool, record_dir: Path | None) -> None:
    """Put what happened to each ended job into its AdminComment, where sacct shows it: as a Slurm operator.

    What others wrote there is never touched, a line of our own is brought up to date. It may run as often as you like,
    from cron for instance. Exit code 1 if not all could be done.
    """
    source = Source(Filter(since=since, until=until, all_users=True), record_roots(record_dir), Wanted())
    collector = _Collector(dry_run, as_json)
    accounted = (attempt for attempt in source.attempts() if attempt.accounted)
    for line in lines(accounted, source.steps):
        if not collector.take(line):
            break
    failure = collector.failure or source.failure
    if as_json:
        click.echo(json.dumps({"v": 1, **collector.count, "dry_run": dry_run, "failure": failure or None}))
    else:
        count = collector.count
        written = "would be written" if dry_run else "written"
        click.echo(
            f"{count['jobs']} jobs with a record: {count['written']} {written}, {count['already']} there already, "
            f"{count['others']} with another's text"
        )
    if failure:
        click.echo(f"greyhound: not all was done: {failure}", err=True)
    sys.exit(INCOMPLETE if failure else 0)
