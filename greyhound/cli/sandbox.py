"""`greyhound sandbox`: a private Slurm cluster on this machine."""

import json
import os
import sys
import time
from typing import NoReturn

import click
from rich.console import Console
from rich.table import Table

from greyhound.sandbox import hostname, interrupts
from greyhound.sandbox.cluster import Sandbox, running, take_down
from greyhound.sandbox.errors import SandboxError
from greyhound.sandbox.layout import DEFAULT_NAME, existing

_name = click.option("--name", default=DEFAULT_NAME, show_default=True, help="Several sandboxes may run side by side.")


def _fail(error: SandboxError) -> NoReturn:
    Console(stderr=True, highlight=False).print(f"greyhound sandbox: {error}", markup=False, soft_wrap=True)
    sys.exit(1)


def _say(text: str) -> None:
    Console(highlight=False).print(f"  {text}", markup=False, soft_wrap=True)


@click.group(name="sandbox")
def command() -> None:
    """A private Slurm cluster on this machine, on loopback only."""


@command.command()
@_name
@click.option("--nodes", default=4, show_default=True, help="Slurm nodes, named n1, n2, ...")
@click.option("--gpus-per-node", default=2, show_default=True, help="Stand-in GPUs a node.")
@click.option("--no-plugin", is_flag=True, help="Leave the SPANK plugin out of plugstack.conf.")
def up(name: str, nodes: int, gpus_per_node: int, no_plugin: bool) -> None:
    """Bring a sandbox up. One that is up stays as it is; a broken one is taken down first, its jobs with it."""
    begun = time.monotonic()
    try:
        with interrupts.as_keyboard_interrupt():
            sandbox = Sandbox.up(name, nodes=nodes, gpus_per_node=gpus_per_node, plugin=not no_plugin, say=_say)
    except SandboxError as error:
        _fail(error)
    _say(f"ready after {time.monotonic() - begun:.1f} s: Slurm {sandbox.state.release} in {sandbox.layout.directory}")
    _say(f"try: greyhound sandbox run --name {name} -- srun -N {len(sandbox.state.nodes)} hostname")


@command.command()
@_name
@click.option("--all", "everything", is_flag=True, help="All sandboxes of this user.")
def down(name: str, everything: bool) -> None:
    """Take a sandbox down, whole or broken; nothing of it is left."""
    try:
        for one in [layout.name for layout in existing()] if everything else [name]:
            _say(f"sandbox {one} is down" if take_down(one, _say) else f"no sandbox {one}")
    except SandboxError as error:
        _fail(error)


@command.command()
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def status(as_json: bool) -> None:
    """List the sandboxes of this user."""
    rows = [
        {
            "name": one.layout.name,
            "state": "up" if one.is_up() else "broken",
            "dead": one.dead(),
            "release": one.state.release,
            "nodes": one.state.nodes,
            "gpus_per_node": one.state.gpus_per_node,
            "plugin": one.state.plugin,
            "directory": one.state.directory,
            "conf": one.state.conf,
            "page": one.state.page,
        }
        for one in running()
    ]
    if as_json:
        click.echo(json.dumps(rows, indent=1))
        return
    table = Table("name", "state", "Slurm", "nodes", "GPUs a node", "plugin", "directory")
    for row in rows:
        cells = [row["name"], row["state"], row["release"], len(one_list(row["nodes"])), row["gpus_per_node"]]
        table.add_row(*map(str, [*cells, "yes" if row["plugin"] else "no", row["directory"]]))
    Console().print(table if rows else "no sandbox; `greyhound sandbox up` starts one")


def one_list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


@command.command(context_settings={"ignore_unknown_options": True})
@_name
@click.argument("arguments", nargs=-1, required=True, type=click.UNPROCESSED)
def run(name: str, arguments: tuple[str, ...]) -> None:
    """Run a command with the sandbox's Slurm: greyhound sandbox run -- srun -N 4 hostname."""
    try:
        environment = Sandbox.get(name).env()
        before = hostname.preparation()
    except SandboxError as error:
        _fail(error)
    try:
        if before is not None:
            before()
        os.execvpe(arguments[0], list(arguments), environment)
    except OSError as error:
        _fail(SandboxError(f"cannot run {arguments[0]!r}: {error.strerror}"))
