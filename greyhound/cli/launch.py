"""`greyhound launch`: N processes on this machine under watch, without Slurm."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from greyhound.config import (
    MODES,
    OptionError,
    Settings,
    apply,
    from_environment,
    native_dir,
    parse_greyhound,
    under_ceiling,
)
from greyhound.control import lines
from greyhound.control.local import Monitor, UnmonitoredError, local_name
from greyhound.control.ranks import Ranks

COMMAND_NOT_FOUND = 127
COMMAND_NOT_EXECUTABLE = 126


def say(text: str) -> None:
    """One line on stderr, marked as ours."""
    print(f"greyhound: {text}", file=sys.stderr, flush=True)


def resolve_settings(mode: str | None, options: str | None) -> Settings:
    """File, environment and command line together; a bad command line is a usage error."""
    settings, warnings = from_environment()
    for warning in warnings:
        say(warning)
    try:
        if options is not None:
            settings = apply(settings, parse_greyhound(options))
    except OptionError as error:
        raise click.BadParameter(str(error), param_hint="--greyhound") from None
    settings, lowered = under_ceiling(apply(settings, {"mode": mode}) if mode else settings)
    if lowered:
        say(lowered)
    return settings


@contextmanager
def standin_page(wanted: bool, gpus: int, native: Path) -> Iterator[dict[str, str]]:
    """The environment of the stand-in and a page for it, removed at the end; nothing if it isn't wanted."""
    if not wanted:
        yield {}
        return
    from greyhound.sandbox.errors import SandboxError
    from greyhound.sandbox.page import VARIABLE, StandinPage

    path = Path(f"/dev/shm/greyhound-standin-{os.getuid()}-{os.getpid()}.page")
    library = native / "standin"
    if not (library / "libnccl.so.2").exists():
        raise click.ClickException(f"{library}/libnccl.so.2 is missing: build the stand-in with `make install`")
    try:
        StandinPage.create(path, [f"localhost:{index}" for index in range(gpus)]).close()
    except SandboxError as error:
        raise click.ClickException(str(error)) from None
    old = os.environ.get("LD_LIBRARY_PATH")
    try:
        yield {VARIABLE: str(path), "LD_LIBRARY_PATH": f"{library}:{old}" if old else str(library)}
    finally:
        path.unlink(missing_ok=True)


def report(end: dict[str, Any] | None) -> None:
    """The last lines: iterations, healthy time, episodes."""
    if end is None:
        say("no report: the job ended before the monitor was up, or the monitor died")
        return
    say(lines.event_line(end))
    for episode in end["data"].get("episodes", []):
        say(f"  {lines.episode_line(episode)}")


def start_monitor(settings: Settings, count: int, native: Path) -> tuple[Monitor | None, dict[str, str]]:
    """The monitor and what the ranks need for it; (None, nothing) when it can't be, said in one line."""
    monitor = Monitor(settings, count, native, say)
    try:
        environment = monitor.start()
    except UnmonitoredError as error:
        say(f"unmonitored: {error}")
        return None, {}
    name = local_name(os.getpid())
    say(f"job {name.job} ({settings.mode}); `greyhound status {name.job}` shows it, record in {monitor.record}")
    return monitor, environment


def run_ranks(
    ranks: Ranks, command: tuple[str, ...], count: int, environment: dict[str, str], monitor: Monitor | None
) -> int:
    """Run the command's processes to their end; their exit code."""
    try:
        ranks.start(command, count, environment)
    except OSError as error:
        say(f"{command[0]!r} can't be started: {error.strerror}")
        return COMMAND_NOT_FOUND if isinstance(error, FileNotFoundError) else COMMAND_NOT_EXECUTABLE
    try:
        return ranks.wait(monitor.round if monitor else lambda: None)
    finally:
        ranks.end()


@click.command("launch", context_settings={"allow_interspersed_args": False})
@click.option("-n", "--processes", "count", type=click.IntRange(1, 256), default=1, help="Processes to start.")
@click.option("--mode", type=click.Choice(MODES), help="on, observe (report only) or off (plain launch).")
@click.option("--greyhound", "options", metavar="MODE[,KEY=VALUE...]", help="As srun --greyhound.")
@click.option("--standin", is_flag=True, help="Run on the CPU stand-in for NCCL and CUDA, with a page for `inject`.")
@click.option("--gpus", type=click.IntRange(1, 256), help="Stand-in GPUs (default: as many as processes).")
@click.option("--native", type=click.Path(path_type=Path), default=native_dir, help="Folder of the built C parts.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def command(
    count: int,
    mode: str | None,
    options: str | None,
    standin: bool,
    gpus: int | None,
    native: Path,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND in -n processes on this machine, watched for fail-slows.

    Each process gets RANK, WORLD_SIZE, MASTER_ADDR and so on; with -n 1 it gets none, so that
    `greyhound launch -- torchrun ...` works. The exit code is that of the first process that fails.
    """
    settings = resolve_settings(mode, options)
    ranks = Ranks()
    ranks.forward_signals()
    with standin_page(standin, gpus or count, native.resolve()) as extra:
        monitor: Monitor | None = None
        watched: dict[str, str] = {}
        if settings.mode != "off":
            monitor, watched = start_monitor(settings, count, native.resolve())
        try:
            code = run_ranks(ranks, command, count, {**os.environ, **extra, **watched}, monitor)
        finally:
            end = monitor.stop() if monitor else None
        if monitor:
            report(end)
    sys.exit(code)
