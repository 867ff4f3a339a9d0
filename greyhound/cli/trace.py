"""`greyhound trace`: what a rank's hook recorded, kept in a file."""

from pathlib import Path

import click

from greyhound.cli import trace_export, trace_record
from greyhound.trace.dump import DumpWriter
from greyhound.trace.ring import Ring, RingError


@click.group("trace")
def command() -> None:
    """Keep the recorded calls of ranks in files, for `greyhound detect` and timelines."""


@command.command("dump")
@click.argument("ring", metavar="RINGFILE", type=click.Path(path_type=Path))
@click.option("-o", "--output", metavar="OUT", required=True, type=click.Path(path_type=Path, dir_okay=False))
def dump(ring: Path, output: Path) -> None:
    """Write the calls that RINGFILE holds now to OUT, compressed.

    RINGFILE is a `ring.PID.STARTTIME` in a step directory under /dev/shm; the rank may be running. A ring holds the
    latest calls only.
    """
    try:
        opened = Ring.open(ring)
    except RingError as error:
        raise click.ClickException(str(error)) from error
    try:
        writer = DumpWriter(opened.header)
        writer.add(*opened.read())
        writer.save(output, opened.comms())
    except RingError as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(f"{click.format_filename(output)}: can't be written: {error.strerror}") from error
    finally:
        opened.close()
    click.echo(f"{click.format_filename(output)}: {writer.count} calls of process {writer.facts['pid']}")


command.add_command(trace_record.command)
command.add_command(trace_export.command)
