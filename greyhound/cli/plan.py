"""`greyhound plan`: what a mitigation would do, from figures of one's own."""

import importlib
import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import click

from greyhound.mitigate.microbatches import PlanError, Request, Split, split

SOLVERS = ("exact", "milp", "quadratic")
MAX_FILE_BYTES = 64 << 20


@click.group("plan")
def command() -> None:
    """Compute a mitigation plan without a job."""


def read_numbers(text: str) -> list[str]:
    """The numbers of an option: `1.0,1.5`, or of `@FILE`, separated by commas, blanks or newlines."""
    if text.startswith("@"):
        path = Path(text[1:])
        try:
            if path.stat().st_size > MAX_FILE_BYTES:
                raise click.BadParameter(f"{path} is larger than {MAX_FILE_BYTES >> 20} MiB: that is no list of times")
            text = path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise click.BadParameter(f"{path} can't be read: {getattr(error, 'strerror', None) or error}") from None
    return [part for part in re.split(r"[\s,]+", text.strip()) if part]


def _floats(ctx: click.Context, param: click.Parameter, text: str) -> tuple[float, ...]:
    parts = read_numbers(text)
    for place, part in enumerate(parts):
        try:
            float(part)
        except ValueError:
            raise click.BadParameter(f"number {place} is {part[:40]!r}; give numbers like 1.0,1.5 or @FILE") from None
    return tuple(map(float, parts))


def _integers(ctx: click.Context, param: click.Parameter, text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    parts = read_numbers(text)
    for place, part in enumerate(parts):
        if not re.fullmatch(r"\d{1,15}", part, re.ASCII):
            raise click.BadParameter(f"bound {place} is {part[:40]!r}; give whole numbers like 8,8,4 or @FILE")
    return tuple(map(int, parts))


def _solver(name: str) -> Callable[[Request], Split]:
    if name == "exact":
        return split
    try:
        crosschecks = importlib.import_module("greyhound.mitigate.crosschecks")
    except ModuleNotFoundError as error:
        mend = "pip install 'greyhound[plan]'"
        raise click.ClickException(f"--solver {name} needs the package {error.name!r}: {mend}") from None
    found: Callable[[Request], Split] = getattr(crosschecks, name)
    return found


@command.command("microbatches")
@click.option(
    "--times", callback=_floats, required=True, metavar="T,T,...|@FILE", help="Seconds a micro-batch by group."
)
@click.option("--total", type=int, required=True, help="Micro-batches in all.")
@click.option("--multiple-of", "multiple", type=int, default=1, show_default=True, help="For interleaved pipelines.")
@click.option("--upper", callback=_integers, metavar="N,N,...|@FILE", help="Most micro-batches by group.")
@click.option("--solver", type=click.Choice(SOLVERS), default="exact", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def microbatches(
    times: tuple[float, ...], total: int, multiple: int, upper: tuple[int, ...] | None, solver: str, as_json: bool
) -> None:
    """Split --total micro-batches over data-parallel groups so that the slowest ends first (S2).

    `exact` is what jobs get; the other two check it (and the paper's quadratic form is another problem over whole
    numbers).
    """
    solve = _solver(solver)
    try:
        request = Request(times, total, multiple, upper)
        began_s = time.perf_counter()
        found = solve(request)
    except PlanError as error:
        raise click.UsageError(str(error)) from None
    took_s = time.perf_counter() - began_s
    if as_json:
        row = {"microbatches": list(found.microbatches), "makespan": found.makespan}
        click.echo(json.dumps({**row, "even_makespan": found.even_makespan, "solve_s": took_s}))
        return
    click.echo(" ".join(map(str, found.microbatches)))
    click.echo(f"makespan {found.makespan:g}, even split {found.even_makespan:g} ({found.gain:.2f}x), {took_s:.4f} s")
