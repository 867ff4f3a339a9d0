"""Faults of `greyhound inject` beside GPUs and links: CPU contention, late input, slow storage, a hung rank."""

import os
import signal
from pathlib import Path

import click

from greyhound.cli.inject_common import DURATION, change, for_option, inject_for, locate_standin, page_option, refuse
from greyhound.sandbox import cpu_quota
from greyhound.sandbox.errors import SandboxError
from greyhound.sandbox.page import StandinPage
from greyhound.sandbox.page_users import PageUser, users

delay_option = click.option("--delay", "delay_s", type=DURATION, required=True, help="How much later (0.3s, 50ms).")


def users_of(path: Path) -> list[PageUser]:
    """Who trains on this page's GPUs."""
    with StandinPage.open(path, to_read=True) as page:
        return users(path, list(page.gpus()))


@click.command("cpu")
@click.argument("node", metavar="NODE")
@click.option("--quota", type=float, required=True, help="Cores for all ranks of the node together, like 0.1.")
@click.option("--period", "period_s", type=DURATION, default="100ms", show_default=True, help="Of the quota.")
@for_option
@page_option
def cpu(node: str, quota: float, period_s: float, duration_s: float | None, page: Path | None) -> None:
    """CPU contention: a kernel's quota (cgroup) on the rank processes that run on one node now."""
    path = locate_standin(page)
    mark = cpu_quota.mark_of(path, node)

    def act() -> None:
        pids = [user.pid for user in users_of(path) if user.node == node]
        if not pids:
            refuse(f"no rank of {path} runs on node {node!r}")
        try:
            moved = cpu_quota.limit(pids, mark, quota, period_s)
        except SandboxError as error:
            cpu_quota.lift(mark)
            refuse(str(error))
        click.echo(f"{node}: {quota:g} cores for its {moved} ranks ({path})")

    def heal() -> None:
        stopped = cpu_quota.throttled(mark)
        cpu_quota.lift(mark)
        click.echo(f"{node} healed; throttled {stopped.seconds:.1f} s in {stopped.periods} periods")

    inject_for(duration_s, act, heal)


@click.command("input")
@click.argument("gpu", metavar="NODE:INDEX")
@delay_option
@for_option
@page_option
def late_input(gpu: str, delay_s: float, duration_s: float | None, page: Path | None) -> None:
    """A slow data loader: the training data of this GPU's rank comes later, once an iteration."""
    path = locate_standin(page)

    def act() -> None:
        change(path, lambda page: page.set_input(gpu, delay_s))
        click.echo(f"{gpu}: training data {delay_s:g} s late ({path})")

    def heal() -> None:
        change(path, lambda page: page.set_input(gpu, 0.0))
        click.echo(f"{gpu} healed")

    inject_for(duration_s, act, heal)


@click.command("storage")
@delay_option
@for_option
@page_option
def storage(delay_s: float, duration_s: float | None, page: Path | None) -> None:
    """A slow file system: every rank's part of a checkpoint takes longer."""
    path = locate_standin(page)

    def act() -> None:
        change(path, lambda page: page.set_storage(delay_s))
        click.echo(f"checkpoints take {delay_s:g} s longer ({path})")

    def heal() -> None:
        change(path, lambda page: page.set_storage(0.0))
        click.echo("storage healed")

    inject_for(duration_s, act, heal)


@click.command("hang")
@click.argument("gpu", metavar="NODE:INDEX")
@for_option
@page_option
def hang(gpu: str, duration_s: float | None, page: Path | None) -> None:
    """Stop the rank of one GPU (SIGSTOP); healing lets it go on."""
    path = locate_standin(page)

    def act() -> None:
        pids = [user.pid for user in users_of(path) if user.gpu == gpu]
        if not pids:
            refuse(f"no rank of {path} runs on GPU {gpu!r}")
        send(pids, signal.SIGSTOP)
        click.echo(f"{gpu}: process {', '.join(map(str, pids))} stopped ({path})")

    def heal() -> None:
        send([user.pid for user in users_of(path) if user.gpu == gpu], signal.SIGCONT)
        click.echo(f"{gpu} goes on")

    inject_for(duration_s, act, heal)


def send(pids: list[int], number: signal.Signals) -> None:
    """One that ended meanwhile is passed over, somebody else's refused."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
        except PermissionError:
            refuse(f"process {pid} is another user's: not stopped and not let go on")


def heal_ranks(path: Path) -> None:
    """Lift every CPU quota of this page's users and let stopped ranks go on."""
    try:
        cpu_quota.lift(f"{cpu_quota.mark_of(path)}.*")
    except SandboxError as error:
        refuse(str(error))
    send([user.pid for user in users_of(path) if is_stopped(user.pid)], signal.SIGCONT)


def is_stopped(pid: int) -> bool:
    """State T of /proc/PID/stat."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False
