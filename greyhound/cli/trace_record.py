"""`greyhound trace record`: the calls of all ranks of a running job for some seconds, in files."""

import json
import shutil
import time
from pathlib import Path
from typing import Any

import click

from greyhound.cli.ask import NO_ANSWER, POLL_S, REFUSED, WAIT_S, Answers, Life, ask, running
from greyhound.cli.jobs import fail, job_options
from greyhound.control.trace_run import ANSWER_S

INCOMPLETE = 5


def _result(answers: Answers, run: str, seconds: float, life: Life) -> dict[str, Any]:
    """The data of the recording's event; exits where none comes."""
    until_s = time.monotonic() + seconds + ANSWER_S + WAIT_S
    while time.monotonic() < until_s:
        for event in answers.new():
            if event["kind"] == "trace" and event["data"].get("run") == run:
                return dict(event["data"])
            if event["kind"] == "end":
                fail("the job ended before the recording was done", NO_ANSWER)
        if gone := life.why_gone():
            fail(f"the recording's end isn't known: the job isn't watched any more ({gone})", NO_ANSWER)
        time.sleep(POLL_S)
    return fail("nothing was heard of the recording any more: the master is gone", NO_ANSWER)


def _fetch(name: str, record: Path, output: Path | None) -> tuple[Path, str]:
    """Where a file is now, and why it isn't where it was asked to be."""
    path = record / Path(name).name
    if not path.exists():
        return path, "not seen from this host (is the record directory that node's own?)"
    if output is None:
        return path, ""
    try:
        return Path(shutil.move(path, output / path.name)), ""
    except OSError as error:
        return path, f"can't be moved to {output}: {error.strerror or error}"


def _make(output: Path) -> None:
    """The folder to move to, before the job is asked for anything."""
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.ClickException(f"{click.format_filename(output)}: can't be made: {error.strerror}") from error


def _show(nodes: list[dict[str, Any]]) -> None:
    for row in nodes:
        for file in row["files"]:
            click.echo(file)
        for problem in filter(None, [row["why_not"], *row["problems"]]):
            click.echo(f"greyhound: {row['node']}: {problem}", err=True)
    files, calls = sum(len(row["files"]) for row in nodes), sum(row["calls"] for row in nodes)
    click.echo(f"greyhound: {calls:,} calls in {files} files; `greyhound detect FILE...` analyses them", err=True)


@click.command("record")
@click.option("--seconds", type=click.FloatRange(0.1, 600), default=10.0, show_default=True, help="How long.")
@click.option("-o", "output", metavar="DIR", type=click.Path(path_type=Path, file_okay=False), help="Move them there.")
@job_options
def command(job: str, record_dir: Path | None, as_json: bool, seconds: float, output: Path | None) -> None:
    """Record the calls of all ranks of a job of yours for some seconds: one file a rank, its names on standard output.

    The files are in the job's record folder unless -o names another; a node stops at 256 MiB of calls. Exit code 2: it
    can't be asked, 3: refused, 4: no answer, 5: not all nodes recorded all of the time.
    """
    run, record = running(job, record_dir)
    if output is not None:
        _make(output)
    answers, for_the_answer = Answers(record), Answers(record)
    answer = ask(run, "trace", {"seconds": seconds}, for_the_answer)
    if not answer["applied"]:
        fail(f"refused: {answer['text']}", REFUSED)
    click.echo(f"greyhound: job {job}: {answer['text']}", err=True)
    result = _result(answers, answer["request"], seconds, Life(run))
    for row in result["nodes"]:
        fetched = [(name, *_fetch(name, record, output)) for name in row["files"]]
        row["files"] = [str(path) for _, path, _ in fetched]
        row["problems"] = [f"{name}: {problem}" for name, _, problem in fetched if problem]
    if as_json:
        click.echo(json.dumps(result))
    else:
        _show(result["nodes"])
    if any(row["why_not"] or row["problems"] for row in result["nodes"]):
        raise click.exceptions.Exit(INCOMPLETE)
