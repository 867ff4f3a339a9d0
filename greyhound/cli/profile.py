"""`greyhound profile`: have a running job's ranks profiled now, and say which component is slow."""

import json
import time
from pathlib import Path
from typing import Any

import click

from greyhound.cli.ask import NO_ANSWER, POLL_S, REFUSED, Answers, ask, running
from greyhound.cli.jobs import fail, job_options
from greyhound.control.verdict_data import identity_text, verdict_text

VERDICT_S = 180.0  # a profile that is under way comes first


def _verdict(answers: Answers, run: str) -> dict[str, Any]:
    """The event with the verdict; exits where none comes."""
    until_s = time.monotonic() + VERDICT_S
    while time.monotonic() < until_s:
        for event in answers.new():
            if event["kind"] == "verdict" and event["data"].get("run") == run:
                return event
            if event["kind"] == "end":
                fail("the job ended before its ranks were profiled", NO_ANSWER)
        time.sleep(POLL_S)
    return fail(f"no verdict in {VERDICT_S:.0f} s: nothing was heard of the profile any more", NO_ANSWER)


def _show(event: dict[str, Any]) -> None:
    data = event["data"]
    click.echo(verdict_text(data, event["episode"]))
    for suspect in data["suspects"]:
        for reason in [*suspect["reasons"], *filter(None, [identity_text(suspect)])]:
            click.echo(f"  {reason}")
    for note in data["notes"]:
        click.echo(f"  note: {note}")


@click.command("profile")
@job_options
def command(job: str, record_dir: Path | None, as_json: bool) -> None:
    """Time the calls of a job of yours for some seconds, on the GPUs, and say which component is slow.

    The job goes on meanwhile; timing a call costs its host some 3 us, 1,300 times a second and rank at most. Exit code
    0: an answer, even that nothing is slow or why that can't be told; 2: it can't be asked, 3: refused, 4: no answer.
    """
    run, record = running(job, record_dir)
    answers, for_the_answer = Answers(record), Answers(record)
    answer = ask(run, "profile", {}, for_the_answer)
    if not answer["applied"]:
        fail(f"refused: {answer['text']}", REFUSED)
    click.echo(f"greyhound: job {job}: {answer['text']}", err=True)
    event = _verdict(answers, answer["request"])
    if as_json:
        click.echo(json.dumps(event))
    else:
        _show(event)
