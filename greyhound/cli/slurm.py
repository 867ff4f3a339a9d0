"""`greyhound slurm`: the plugin in and out of a site's Slurm."""

import sys
from collections.abc import Callable
from pathlib import Path

import click

from greyhound.cli import requeue
from greyhound.doctor.slurm_checks import DEFAULT_PLUGSTACK, SlurmHost
from greyhound.slurm.client import SlurmError
from greyhound.slurm.install import Installer, InstallError, Site


@click.group("slurm")
def command() -> None:
    """Install the plugin into this site's Slurm, upgrade it, take it out again. As root, where Slurm is."""


def _plugstack(given: Path | None) -> Path:
    if given is not None:
        return given
    try:
        return SlurmHost().plugstack()
    except SlurmError as error:
        raise click.UsageError(f"plugstack.conf isn't known: {error}; give --plugstack FILE") from None


def _options(function: Callable[..., None]) -> Callable[..., None]:
    """What the three share."""
    paths = click.Path(path_type=Path)
    function = click.option("--dry-run", is_flag=True, help="Tell what would be done, do nothing.")(function)
    function = click.option("--plugstack", type=paths, help="Default: as slurmctld names it.")(function)
    prefix = Path(sys.prefix)
    return click.option(
        "--prefix", type=paths, default=prefix, show_default=True, help="Seen by every node; its bin/python runs us."
    )(function)


def _run(action: Callable[[], None]) -> None:
    try:
        action()
    except InstallError as error:
        raise click.ClickException(str(error)) from None


@command.command("install")
@_options
@click.option("--slurm-include", type=click.Path(path_type=Path), help="The folder that holds slurm/spank.h.")
def install(prefix: Path, plugstack: Path | None, dry_run: bool, slurm_include: Path | None) -> None:
    """Build the plugin for this Slurm release and install it: files by rename, then one `optional` line.

    May be repeated (that is what `upgrade` does, the line stays as it is); no job is refused meanwhile. New installs
    observe only (max_mode=observe in the line).
    """
    site = Site(prefix.resolve(), _plugstack(plugstack), slurm_include)
    _run(Installer(site, click.echo, dry_run).install)


command.add_command(requeue.command)
# After an upgrade of Slurm or of Greyhound the same is done again; the line stays as it is.
command.add_command(install, "upgrade")


@command.command("uninstall")
@_options
@click.option("--remove-line", is_flag=True, help="Also forget the option: scripts that carry it are refused then.")
def uninstall(prefix: Path, plugstack: Path | None, dry_run: bool, remove_line: bool) -> None:
    """Put a stub in the plugin's place, which accepts --greyhound and says "disabled by the site"."""
    try:
        conf = _plugstack(plugstack)
    except click.UsageError as error:
        if remove_line:
            raise
        # The stub goes where the plugin lies, whatever names it: a package is removed with slurmctld down, too.
        click.echo(f"greyhound: {error.message}", err=True)
        conf = DEFAULT_PLUGSTACK
    installer = Installer(Site(prefix.resolve(), conf), click.echo, dry_run)
    _run(lambda: installer.uninstall(remove_line))
