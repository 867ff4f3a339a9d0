"""Points in time on the command line, as sacct takes them."""

from datetime import datetime

import click

from greyhound.slurm.durations import TimeTextError, parse_typed_moment

MOMENT = "%Y-%m-%dT%H:%M:%S"


def moment(ctx: click.Context, param: click.Parameter, text: str | None) -> str:
    """A click callback: `2026-11-30`, `now-7days` ... in sacct's own form; empty where nothing was given."""
    if text is None:
        return ""
    try:
        return parse_typed_moment(text, datetime.now()).strftime(MOMENT)
    except TimeTextError as error:
        raise click.BadParameter(str(error)) from None
