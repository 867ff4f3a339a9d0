"""Entry point of the `greyhound` command; subcommands load when they are used."""

import importlib

import click

COMMANDS = {
    "launch": "greyhound.cli.launch",
    "status": "greyhound.cli.status",
    "events": "greyhound.cli.events",
    "inject": "greyhound.cli.inject",
    "sandbox": "greyhound.cli.sandbox",
}


class LazyGroup(click.Group):
    """A click group whose commands are imported on first use; each module names its command `command`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(COMMANDS[cmd_name]).command
        assert isinstance(command, click.Command)
        return command


@click.group(cls=LazyGroup)
@click.version_option(package_name="greyhound")
def main() -> None:
    """Hunt fail-slows in hybrid-parallel training jobs."""
