"""What the commands about one job share: its argument, where records lie, exit codes."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from greyhound.control import lookup
from greyhound.control.lookup import LookupFailedError, Run, find_run
from greyhound.sandbox.layout import existing
from greyhound.slurm import jobid
from greyhound.slurm.choose import connect
from greyhound.slurm.client import Client, SlurmError

Function = TypeVar("Function", bound=Callable[..., Any])
UNKNOWN_JOB = 2
WAIT_S = 1.0
ALIVE = ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "REQUEUED", "REQUEUE_HOLD")


def fail(text: str, code: int) -> NoReturn:
    """End the command with one line on stderr."""
    click.echo(f"greyhound: {text}", err=True)
    raise click.exceptions.Exit(code)


def job_options(function: Function) -> Function:
    """Add JOB[.STEP], --record-dir and --json."""
    function = click.option("--json", "as_json", is_flag=True, help="For programs.")(function)
    function = click.option(
        "--record-dir", type=click.Path(path_type=Path, file_okay=False), help="Look here for records, nowhere else."
    )(function)
    return click.argument("job", metavar="JOB[.STEP]")(function)


def plain_id(text: str, client: Client) -> str:
    """The id under which Slurm runs an array task or a component (`123_4` may be job 127); other text as it is."""
    try:
        parsed = jobid.parse(text)
    except jobid.JobIdError:
        return text
    if parsed.array_task is None and parsed.het_offset is None:
        return text
    try:
        number = client.job_number(str(replace(parsed, step=None, step_het_offset=None)))
    except SlurmError:
        return text
    return str(number) if parsed.step is None else f"{number}.{parsed.step}"


def record_roots(given: Path | None) -> list[Path]:
    """Record directories to look in: the one given alone, else the configured ones and this user's sandboxes'."""
    found = lookup.record_roots(given)
    return found if given is not None else lookup.distinct([*found, *(layout.records for layout in existing())])


def _may_still_come(job: str, client: Client) -> bool:
    """Whether Slurm has the job, so that a record of it may yet appear."""
    try:
        return client.job_state(job) in ALIVE
    except (jobid.JobIdError, SlurmError):
        return False


def find(job: str, record_dir: Path | None, wait: bool = False) -> Run:
    """The run meant, or exit 2 with a line that names where it looked; `wait` for one that Slurm has not begun yet."""
    client, _ = connect()
    said = False
    while True:
        try:
            return find_run(plain_id(job, client), record_roots(record_dir))
        except LookupFailedError as error:
            if not (wait and _may_still_come(job, client)):
                fail(str(error), UNKNOWN_JOB)
        if not said:
            click.echo(f"greyhound: waiting for job {job} to begin", err=True)
            said = True
        time.sleep(WAIT_S)
