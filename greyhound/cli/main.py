"""Entry point of the `greyhound` command; subcommands load when they are used."""

import importlib

import click

COMMANDS = {
    "launch": "greyhound.cli.launch",
    "status": "greyhound.cli.status",
    "events": "greyhound.cli.events",
    "set": "greyhound.cli.set",
    "ab": "greyhound.cli.ab",
    "profile": "greyhound.cli.profile",
    "inject": "greyhound.cli.inject",
    "sandbox": "greyhound.cli.sandbox",
    "collect": "greyhound.cli.collect",
    "bundle": "greyhound.cli.bundle",
    "doctor": "greyhound.cli.doctor",
    "plan": "greyhound.cli.plan",
    "report": "greyhound.cli.report",
    "detect": "greyhound.cli.detect",
    "trace": "greyhound.cli.trace",
    "selftest": "greyhound.cli.selftest",
    "slurm": "greyhound.cli.slurm",
}


class LazyGroup(click.Group):
    """A click group whose commands are imported on first use; each module names its command `command`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        try:
            command = importlib.import_module(COMMANDS[cmd_name]).command
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] == "greyhound":
                raise
            return _unavailable(cmd_name, str(error.name))
        assert isinstance(command, click.Command)
        return command


def _unavailable(name: str, module: str) -> click.Command:
    """Stands in for a command whose libraries aren't installed, so that the others and `--help` still work."""
    mend = f"needs the Python package {module!r}; install it: pip install 'greyhound[control]'"

    @click.command(name, short_help=mend, context_settings={"ignore_unknown_options": True}, add_help_option=False)
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def unavailable(arguments: tuple[str, ...]) -> None:
        raise click.ClickException(f"`greyhound {name}` {mend}")

    return unavailable


@click.group(cls=LazyGroup)
@click.version_option(package_name="greyhound")
def main() -> None:
    """Hunt fail-slows in hybrid-parallel training jobs."""
