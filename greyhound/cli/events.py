"""`greyhound events`: a job's event log, as lines for people or as it is."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from greyhound.cli.jobs import fail, find, job_options
from greyhound.control import lines
from greyhound.control.events import EventTail

FOLLOW_S = 0.5
NO_EVENTS = 2
_STYLE = {
    "suspect": "bold red",
    "verdict": "bold",
    "fail_stop": "bold red",
    "recovered": "green",
    "unmonitored": "yellow",
    "not_intercepted": "yellow",
}


def follow(path: Path, forever: bool, killed: Callable[[], str]) -> Iterator[dict[str, Any]]:
    """Events of the log; with `forever` also those to come, until `end` or until nobody writes any more, which is said.

    `killed` gives the words for that, empty while somebody may still write.
    """
    tail = EventTail(path)
    while True:
        for event in tail.new():
            yield event
            if event["kind"] == "end":
                return
        words = killed()
        if words:
            click.echo(f"greyhound: {words}", err=True)
        if words or not forever:
            return
        time.sleep(FOLLOW_S)


def show(console: Console, event: dict[str, Any]) -> None:
    """One event as a line."""
    text = Text(f"{str(event.get('time', ''))[:19].replace('T', ' ')}  ", style="dim")
    text.append(f"{event['kind']:<12} ", style=_STYLE.get(event["kind"], ""))
    text.append(lines.event_line(event), style="")
    console.print(text, soft_wrap=True)


@click.command("events")
@job_options
@click.option("--follow", "forever", is_flag=True, help="Wait for more, until the job ends.")
def command(job: str, record_dir: Path | None, as_json: bool, forever: bool) -> None:
    """Show what happened in a job, oldest first; times are UTC.

    JOB is a Slurm job id or local-PID; without STEP the newest step is shown. Exit code 2: nothing is known of it.
    """
    run = find(job, record_dir, forever)
    if run.record is None:
        fail(f"job {job} lives on this host, but its record is not in the record directories looked in", NO_EVENTS)
    console = Console(highlight=False)

    def killed() -> str:
        return find(job, record_dir).last_words(time.time())

    for event in follow(run.record / "events.jsonl", forever, killed):
        if as_json:
            click.echo(json.dumps(event))
        else:
            show(console, event)
