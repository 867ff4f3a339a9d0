"""`greyhound set`: other settings for a job that runs."""

import json
from pathlib import Path
from typing import Any

import click

from greyhound.cli.ask import REFUSED, WAIT_S, Answers, ask, running
from greyhound.cli.jobs import fail, job_options
from greyhound.config import MODES, OptionError, parse_mode, parse_option

KEYS = ("mode", "threshold")
_HELP = f"mode={'|'.join(MODES)}, threshold=0.02..1.0"


def parse_wishes(texts: tuple[str, ...]) -> dict[str, Any]:
    """`key=value` words as the fields of a request; a bad one is a usage error that names it."""
    fields: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if key not in KEYS or not equals:
            raise click.UsageError(f"{text!r} can't be set while a job runs; use {_HELP}")
        if key in fields:
            raise click.UsageError(f"{key!r} is given twice")
        try:
            fields[key] = parse_mode(value) if key == "mode" else parse_option(text)[1]
        except OptionError as error:
            raise click.UsageError(str(error)) from None
    return fields


@click.command("set")
@click.option("--wait", "wait_s", type=click.FloatRange(1, 3600), default=WAIT_S, help="Seconds to wait for an answer.")
@job_options
@click.argument("wishes", metavar="KEY=VALUE...", nargs=-1, required=True)
def command(job: str, record_dir: Path | None, as_json: bool, wishes: tuple[str, ...], wait_s: float) -> None:
    """Change the settings of a job of yours while it runs: mode=observe|off|on, threshold=0.05.

    mode=off mutes the hooks; mode=observe lets them record again. The site's ceilings hold. Exit code 2: it can't
    be asked, 3: refused, 4: no answer.
    """
    fields = parse_wishes(wishes)
    run, record = running(job, record_dir)
    answer = ask(run, "set", fields, Answers(record), wait_s)
    if as_json:
        click.echo(json.dumps(answer))
    if not answer["applied"]:
        fail(f"refused: {answer['text']}", REFUSED)
    if not as_json:
        click.echo(f"job {job}: {answer['text']}")
