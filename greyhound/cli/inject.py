"""`greyhound inject`: make a stand-in GPU, link or rank slow while a job runs, and well again."""

import shutil
import socket
import subprocess
from pathlib import Path

import click

from greyhound.cli import inject_host
from greyhound.cli.inject_common import RATE, SECONDS, change, for_option, inject_for, locate, page_option, refuse
from greyhound.sandbox.page import StandinPage

SMI_TIMEOUT_S = 30

real_option = click.option("--yes-real", is_flag=True, help="No stand-in here: change this node's real GPU.")


@click.group("inject")
def command() -> None:
    """Make a GPU, a link, a node's CPU, input or storage slow while a job runs (stand-in), and well again."""


for extra in (inject_host.cpu, inject_host.late_input, inject_host.storage, inject_host.hang):
    command.add_command(extra)


@command.command("gpu")
@click.argument("gpu", metavar="NODE:INDEX|all")
@click.option("--speed", type=float, required=True, help="Share of the healthy speed: 0.5 takes twice as long.")
@for_option
@page_option
@real_option
def gpu(gpu: str, speed: float, duration_s: float | None, page: Path | None, yes_real: bool) -> None:
    """Set the speed of one GPU, or of all (stand-in only)."""
    path = locate(page)
    if path is None:
        real_gpu(gpu, speed, duration_s, yes_real)
        return

    def set_speed(page: StandinPage, speed: float) -> None:
        for name in page.gpus() if gpu == "all" else [gpu]:
            page.set_speed(name, speed)

    def act() -> None:
        change(path, lambda page: set_speed(page, speed))
        click.echo(f"{gpu} at speed {speed:g} ({path})")

    def heal() -> None:
        change(path, lambda page: set_speed(page, 1.0))
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
    """Every GPU at full speed, every link without limit, no rank with a CPU quota, late data or stopped."""
    path = locate(page)
    if path is None:
        refuse("no stand-in page here; real GPUs are unlocked with `nvidia-smi -rgc`")
    change(path, lambda page: page.heal())
    inject_host.heal_ranks(path)
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
