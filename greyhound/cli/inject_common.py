"""What the commands of `greyhound inject` share: the page, quantities, refusals, healing after a time."""

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import click

from greyhound.sandbox.errors import SandboxError
from greyhound.sandbox.page import StandinPage, find_page
from greyhound.sandbox.units import parse_rate_bytes_per_s, parse_seconds

REFUSED = 2


def quantity(parse: Callable[[str], float]) -> Callable[[Any], float]:
    """A click type that reads a rate or a duration with its unit; a usage error names the text."""

    def convert(value: Any) -> float:
        try:
            return parse(str(value))
        except SandboxError as error:
            raise click.BadParameter(str(error)) from None

    convert.__name__ = "quantity"
    return convert


RATE = quantity(parse_rate_bytes_per_s)
SECONDS = quantity(parse_seconds)
DURATION = quantity(lambda text: parse_seconds(text, unit_needed=False))

page_option = click.option("--page", type=click.Path(path_type=Path), help="Stand-in page (default: the running one).")
for_option = click.option("--for", "duration_s", type=DURATION, help="Heal after this time (60s, 5m).")


def refuse(text: str) -> NoReturn:
    """One line, exit 2."""
    click.echo(f"greyhound: {text}", err=True)
    raise click.exceptions.Exit(REFUSED)


def locate(page: Path | None) -> Path | None:
    """The stand-in page, None where there is none at all; a named one that is missing is refused."""
    try:
        return find_page(page)
    except SandboxError as error:
        if page is not None or "no stand-in page" not in str(error):
            refuse(str(error))
        return None


def locate_standin(page: Path | None) -> Path:
    """The stand-in page; without one this fault can't be made here."""
    path = locate(page)
    if path is None:
        refuse(
            "no stand-in page here, and this fault is made for the sandbox's trainings alone. "
            "Start `greyhound sandbox up` or `greyhound launch --standin`, or name a page with --page"
        )
    return path


def inject_for(duration_s: float | None, act: Callable[[], None], heal: Callable[[], None]) -> None:
    """Act; with a duration wait and heal, at once on Ctrl-C, TERM or a hang-up, and whatever goes wrong in between."""
    if duration_s is None:
        act()
        return
    with stopped_by_signals() as shield:
        changed = True
        try:
            act()
            time.sleep(duration_s)
            shield()
        except KeyboardInterrupt:
            click.echo("interrupted, healing")
        except click.exceptions.Exit:
            changed = False  # refused
            raise
        finally:
            shield()
            if changed:
                heal()


@contextlib.contextmanager
def stopped_by_signals() -> Iterator[Callable[[], None]]:
    """The first INT, TERM or HUP raises KeyboardInterrupt; none does after the function that is given was called.

    In place before the fault is made, so that none finds the fault made and nobody to heal it. What was ignored
    stays so (nohup).
    """

    def stop(signum: int, frame: FrameType | None) -> None:
        set_all(signal.SIG_IGN)
        raise KeyboardInterrupt

    old = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    ours = [signum for signum, handler in old.items() if handler is not signal.SIG_IGN]

    def set_all(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> None:
        for signum in ours:
            signal.signal(signum, handler)

    set_all(stop)
    try:
        yield lambda: set_all(signal.SIG_IGN)
    finally:
        for signum in ours:
            signal.signal(signum, old[signum])


def change(path: Path, action: Callable[[StandinPage], None]) -> None:
    """Open the page, act, close it; what the page refuses ends the command."""
    try:
        with StandinPage.open(path) as page:
            action(page)
    except SandboxError as error:
        refuse(str(error))
