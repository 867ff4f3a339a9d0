"""`greyhound bundle`: one archive for a support request."""

import importlib.metadata
import json
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from greyhound.cli.jobs import fail, find
from greyhound.control.lookup import Run
from greyhound.doctor.checks import examine
from greyhound.doctor.slurm_checks import SlurmHost
from greyhound.report.bundle import Part, record_parts, write
from greyhound.slurm.client import SlurmError

PACKAGES = ("greyhound", "numpy", "redis", "psutil", "click", "torch", "megatron-core")
UNWRITABLE = 1


def _versions() -> str:
    rows = {"python": sys.version, "platform": platform.platform()}
    for name in PACKAGES:
        try:
            rows[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            rows[name] = "not installed"
    return json.dumps(rows, indent=1) + "\n"


def _slurm(host: SlurmHost, *command: str) -> str:
    try:
        return host.command(*command)
    except SlurmError as error:
        return f"{error}\n"


def _doctor() -> str:
    rows = [{**vars(finding), "level": finding.level.name.lower()} for finding in examine()]
    return json.dumps(rows, indent=1) + "\n"


def _siblings(run: Run) -> list[Path]:
    """The folders of all steps and runs of the job."""
    if run.record is None:
        return []
    try:
        return sorted(path for path in run.record.parent.iterdir() if path.is_dir() and not path.is_symlink())
    except OSError:
        return [run.record]


def parts(job: str, run: Run) -> Iterator[Part]:
    """Everything about a job that this user may see."""
    yield Part("versions.json", _versions())
    for folder in _siblings(run):
        yield from record_parts(folder, f"record/{folder.name}")
    if run.live is not None:
        yield from record_parts(run.live, f"live/{run.live.name}")
    yield Part("doctor.json", _doctor())
    host, number = SlurmHost(), run.name.job
    if number.isdecimal():
        yield Part(
            "slurm/sacct.txt", _slurm(host, "sacct", "--duplicates", "--long", "--parsable2", f"--jobs={number}")
        )
        yield Part("slurm/job.txt", _slurm(host, "scontrol", "show", "job", number))
    yield Part("slurm/config.txt", _slurm(host, "scontrol", "show", "config"))


@click.command("bundle")
@click.argument("job", metavar="JOB")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Default: greyhound-JOB.tar.gz.")
@click.option("--record-dir", type=click.Path(path_type=Path, file_okay=False), help="Look here for records alone.")
def command(job: str, output: Path | None, record_dir: Path | None) -> None:
    """Pack a job's records, its accounting, this host's configuration and doctor's findings into one archive.

    Tokens and passwords are removed. Look into it before you hand it on: it names users, nodes and jobs.
    """
    run = find(job, record_dir)
    top = f"greyhound-{run.name.job}"
    path = output or Path(f"{top}.tar.gz")
    try:
        names = write(path, parts(job, run), top)
    except FileExistsError:
        fail(f"{path} is there already: name another with -o", UNWRITABLE)
    except OSError as error:
        fail(f"{path} can't be written: {error.strerror}", UNWRITABLE)
    click.echo(f"{path}: {len(names)} files ({', '.join(sorted({name.partition('/')[0] for name in names}))})")
