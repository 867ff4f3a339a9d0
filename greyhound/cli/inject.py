"""`greyhound inject`: make a stand-in GPU or link slow while a job runs, and well again."""

import contextlib
import shutil
import signal
import socket
import subprocess
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
SMI_TIMEOUT_S = 30


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
real_option = click.option("--yes-real", is_flag=True, help="No stand-in here: change this node's real GPU.")
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


@click.group("inject")
def command() -> None:
    """Make a GPU or a link slow while a job runs (stand-in), and well again."""


@command.command("gpu")
@click.argument("gpu", metavar="NODE:INDEX")
@click.option("--speed", type=float, required=True, help="Share of the healthy speed: 0.5 takes twice as long.")
@for_option
@page_option
@real_option
def gpu(gpu: str, speed: float, duration_s: float | None, page: Path | None, yes_real: bool) -> None:
    """Set the speed of one GPU."""
    path = locate(page)
    if path is None:
        real_gpu(gpu, speed, duration_s, yes_real)
        return

    def act() -> None:
        change(path, lambda page: page.set_speed(gpu, speed))
        click.echo(f"{gpu} at speed {speed:g} ({path})")

    def heal() -> None:
        change(path, lambda page: page.set_speed(gpu, 1.0))
        click.echo(f"{gpu} healed")

    inject_for(duration_s, act, heal)


@command.command("link")
@click.argument("source", metavar="A")
@click.argument("target", metavar="B")
@click.option("--bandwidth", type=RATE, default="unlimited", help="Like 50MB/s or 400Gb/s.")
@click.option("--latency", type=SECONDS, default="0", help="Added latency, like 5ms.")
@click.option("--one-way", is_flag=True, help="Only from A to B.")
@for_option
@page_option
def link(
    source: str,
    target: str,
    bandwidth: float,
    latency: float,
    one_way: bool,
    duration_s: float | None,
    page: Path | None,
) -> None:
    """Limit the link between two stand-in GPUs, both ways unless --one-way."""
    path = locate(page)
    if path is None:
        refuse(
            "no stand-in page here, and a real link is not for this command to slow down: other jobs share it. "
            "Start `greyhound sandbox up` or `greyhound launch --standin`, or name a page with --page"
        )
    if not bandwidth and not latency:
        raise click.UsageError("give --bandwidth, --latency or both; `greyhound inject heal` makes all well")
    arrow = "->" if one_way else "<->"

    def act() -> None:
        change(path, lambda page: page.set_link(source, target, bandwidth, latency, one_way=one_way))
        limit = f"{bandwidth / 1e6:g} MB/s" if bandwidth else "no limit"
        click.echo(f"{source} {arrow} {target}: {limit}, {latency * 1e3:g} ms more ({path})")

    def heal() -> None:
        change(path, lambda page: page.set_link(source, target, 0.0, 0.0, one_way=one_way))
        click.echo(f"{source} {arrow} {target} healed")

    inject_for(duration_s, act, heal)


@command.command("heal")
@page_option
def heal_all(page: Path | None) -> None:
    """Every GPU at full speed, every link without limit."""
    path = locate(page)
    if path is None:
        refuse("no stand-in page here; real GPUs are unlocked with `nvidia-smi -rgc`")
    change(path, lambda page: page.heal())
    click.echo(f"all healed ({path})")


def _nvidia_smi(*arguments: str) -> str:
    binary = shutil.which("nvidia-smi")
    if binary is None:
        refuse("no stand-in page and no nvidia-smi on this node: there is nothing to inject into")
    command = [binary, *arguments]
    try:
        # In a process group of its own: a Ctrl-C at the terminal must not end the healing half-way.
        answer = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=SMI_TIMEOUT_S, process_group=0
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        # It may have done its work before: no refusal, after which nothing would be healed.
        raise click.ClickException(f"nvidia-smi {' '.join(arguments)}: {error}") from None
    if answer.returncode != 0:
        refuse(f"nvidia-smi {' '.join(arguments)}: {(answer.stderr or answer.stdout).strip()}")
    return answer.stdout


def real_gpu(gpu: str, speed: float, duration_s: float | None, yes_real: bool) -> None:
    """Lock the clocks of a GPU of this node at `speed` times its highest; says how that is undone."""
    index = gpu.rpartition(":")[2]
    undo = f"nvidia-smi -i {index} -rgc"
    if not yes_real:
        refuse(
            f"no stand-in page here, so {gpu} would be a real GPU: refused without --yes-real "
            f"(it locks the GPU's clocks for everybody who uses it; undone by `{undo}`)"
        )
    node = gpu.rpartition(":")[0]
    if node not in ("localhost", socket.gethostname(), socket.gethostname().partition(".")[0]):
        refuse(f"{gpu} is not on this node ({socket.gethostname()}): run this command there")
    if not index.isdecimal() or not 0 < speed <= 1:
        refuse(f"{gpu} at speed {speed:g}: give NODE:INDEX of this node and a speed above 0, at most 1")
    highest = _nvidia_smi("-i", index, "--query-gpu=clocks.max.graphics", "--format=csv,noheader,nounits").strip()
    if not highest.isdecimal():
        refuse(f"GPU {index} doesn't tell its highest clock ({highest!r}); n/a")
    clock = max(1, round(int(highest) * speed))

    def act() -> None:
        _nvidia_smi("-i", index, "-lgc", f"{clock},{clock}")
        click.echo(f"real GPU {index} of this node locked at {clock} MHz of {highest}; undo: {undo}")

    def heal() -> None:
        _nvidia_smi("-i", index, "-rgc")
        click.echo(f"real GPU {index} unlocked")

    inject_for(duration_s, act, heal)
