"""What the commands about one job share: its argument, where records lie, exit codes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from greyhound.control.lookup import LookupFailedError, Run, find_run, record_roots

Function = TypeVar("Function", bound=Callable[..., Any])
UNKNOWN_JOB = 2


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


def find(job: str, record_dir: Path | None) -> Run:
    """The run meant, or exit 2 with a line that names where it looked."""
    try:
        return find_run(job, record_roots(record_dir))
    except LookupFailedError as error:
        fail(str(error), UNKNOWN_JOB)
