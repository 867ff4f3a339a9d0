"""`greyhound ab`: what the watch costs a running job, measured in the job itself."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from greyhound.cli.ask import NO_ANSWER, POLL_S, REFUSED, WAIT_S, Answers, Life, ask, running
from greyhound.cli.jobs import fail, job_options
from greyhound.control.ab_result import Comparison, compare, verdict
from greyhound.control.lookup import Run

GRACE_S = 150.0  # without a window: an answer may take a minute, its end another
TOO_FEW = 5


class _Follower:
    """The events of one comparison, until it is over."""

    def __init__(self, answers: Answers, run: str, life: Life) -> None:
        self._answers = answers
        self._run = run
        self._life = life
        self.gone = False
        self.windows: list[dict[str, Any]] = []
        self.count = 0
        self.window_s = 0.0
        self.reason = ""

    def events(self) -> Iterator[dict[str, Any]]:
        """Each event's data; ends with the comparison, or with the job."""
        heard_s = time.monotonic()
        while not self.reason:
            for event in self._answers.new():
                if event["kind"] == "end":
                    self.reason = "the job ended"
                data = event["data"]
                if event["kind"] == "ab" and data.get("run") == self._run:
                    heard_s = time.monotonic()
                    self._take(data)
                    yield data
            silent = time.monotonic() - heard_s > GRACE_S + 2 * self.window_s
            why = self._life.why_gone() or ("nothing was heard of it any more" if silent else "")
            if why and not self.reason:
                self.reason, self.gone = f"the job isn't watched any more ({why})", True
            time.sleep(POLL_S)

    def _take(self, data: dict[str, Any]) -> None:
        if data["phase"] == "start":
            self.count, self.window_s = data["windows"], data["window_s"]
        elif data["phase"] == "window":
            self.windows.append(data)
        else:
            self.reason = data["reason"]


@contextmanager
def stopping(run: Run, record: Path) -> Iterator[None]:
    """Tell the master to stop where the command is interrupted: the job then records again at once."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo("\ngreyhound: interrupted; asking the job to record again", err=True)
        answer = ask(run, "ab_stop", {}, Answers(record), WAIT_S)
        click.echo(f"greyhound: {answer['text']}", err=True)
        raise click.exceptions.Exit(130) from None


def show_progress(follower: _Follower, console: Console) -> None:
    """A bar, and the last window beside it."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as progress:
        task = progress.add_task("comparing", total=None)
        for data in follower.events():
            if data["phase"] == "start":
                progress.update(task, total=data["windows"])
            elif data["phase"] == "window":
                kind = "muted" if data["muted"] else "recording"
                text = data["dropped"] or f"{1000 * data['iteration_s']:.4g} ms an iteration"
                progress.update(task, advance=1, description=f"{kind}: {text}")


def as_data(comparison: Comparison, follower: _Follower) -> dict[str, Any]:
    """For programs: shares, seconds."""
    return {
        "cost": asdict(comparison.cost) | {"is_clear": comparison.cost.is_clear} if comparison.cost else None,
        "muted_s": comparison.muted_s,
        "recording_s": comparison.recording_s,
        "pairs_left_out": comparison.dropped,
        "why": comparison.why_dropped,
        "reason": follower.reason,
        "text": verdict(comparison),
        "windows": follower.windows,
    }


@click.command("ab")
@click.option("--minutes", type=click.FloatRange(0.1, 60), default=5.0, show_default=True, help="How long to compare.")
@job_options
def command(job: str, record_dir: Path | None, as_json: bool, minutes: float) -> None:
    """Measure what the watch costs a job of yours: mute and unmute its hooks in turn and compare the iteration times.

    While a window is muted nothing is seen of the job; interrupted, it records again. A comparison that ends early (the
    job ended) says so, and what its windows came to. Exit code 0: there is a figure, 2: it can't be asked, 3: refused,
    4: no answer, or no more of them, 5: too few windows to say anything.
    """
    run, record = running(job, record_dir)
    answers, for_the_answer = Answers(record), Answers(record)
    answer = ask(run, "ab", {"minutes": minutes}, for_the_answer)
    if not answer["applied"]:
        fail(f"refused: {answer['text']}", REFUSED)
    console = Console(highlight=False, stderr=as_json)
    console.print(f"job {job}: {answer['text']}")
    follower = _Follower(answers, answer["request"], Life(run))
    with stopping(run, record):
        show_progress(follower, console)
    comparison = compare(follower.windows)
    if as_json:
        click.echo(json.dumps(as_data(comparison, follower)))
    else:
        console.print(verdict(comparison))
    if follower.reason != "done":
        click.echo(f"greyhound: the comparison ended early: {follower.reason}", err=True)
    if follower.gone:
        raise click.exceptions.Exit(NO_ANSWER)
    if comparison.cost is None:
        raise click.exceptions.Exit(TOO_FEW)
