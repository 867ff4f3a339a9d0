"""`greyhound selftest`: proves on two nodes that the hook is harmless there, and writes the certificate."""

import shutil
import subprocess
import sys
import time
from pathlib import Path

import click

from greyhound.cli.jobs import fail
from greyhound.selftest import certificate, rank
from greyhound.selftest.__main__ import certificates_folder

SCRIPT = Path(certificate.__file__).with_name("selftest.sbatch")
NOT_SUBMITTED = 2
OUTPUT = "selftest.out"


def _training_python() -> str:
    """The python of the environment that the user works in, else our own."""
    return shutil.which("python") or sys.executable


def _prepare(folder: Path) -> Path:
    """The folder without an earlier run's results; the file for the job's output."""
    folder.mkdir(parents=True, exist_ok=True)
    output = folder / OUTPUT
    for path in [*folder.glob("on.*.json"), *folder.glob("off.*.json"), output]:
        path.unlink(missing_ok=True)
    return output


def _hand_in(folder: Path, resources: list[str], arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """Submit and wait for the end; exits where that is impossible."""
    program = str(Path(rank.__file__).resolve())
    training_python, certificates, pairs = arguments
    given = [str(folder), training_python, sys.executable, program, certificates, pairs]
    argv = ["sbatch", "--wait", f"--output={folder / OUTPUT}", f"--chdir={folder}", *resources, str(SCRIPT), *given]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    except OSError as error:
        fail(f"the self-test can't be handed in: sbatch: {error.strerror}", NOT_SUBMITTED)
    if "Submitted batch job" not in done.stdout:
        fail(f"sbatch refused the self-test: {done.stderr.strip() or done.stdout.strip()}", NOT_SUBMITTED)
    return done


@click.command("selftest")
@click.option("--nodes", type=click.IntRange(1, 64), default=2, show_default=True, help="Nodes.")
@click.option("--gpus-per-node", "gpus", type=click.IntRange(1, 16), default=1, show_default=True, help="GPUs a node.")
@click.option("--python", default=_training_python, help="The training's python, with torch (default: python in PATH).")
@click.option("--folder", type=click.Path(path_type=Path), help="Results, seen by the nodes (default: a new one here).")
@click.option("--certificates", type=click.Path(path_type=Path), help="Default: beside the job records.")
@click.option("--pairs", type=click.IntRange(3, 1000), default=30, show_default=True, help="Pairs of timed windows.")
@click.option("--sbatch", "options", multiple=True, metavar="OPTION", help="For sbatch, as --sbatch=--partition=gpu.")
def command(
    nodes: int,
    gpus: int,
    python: str,
    folder: Path | None,
    certificates: Path | None,
    pairs: int,
    options: tuple[str, ...],
) -> None:
    """Run small DDP and FSDP2 trainings on --nodes nodes, with and without the hook, and compare them.

    Checks that every call is recorded, that results and losses are identical and CUDA graphs are untouched, and
    measures what the hook costs. A pass writes a certificate for this driver, CUDA, NCCL and torch. Waits for the job;
    exit code 0 passed, 1 failed, 2 not handed in.
    """
    folder = (folder or Path.cwd() / f"greyhound-selftest-{time.strftime('%Y%m%d-%H%M%S')}").resolve()
    try:
        output = _prepare(folder)
    except OSError as error:
        fail(f"{folder} can't be used: {error.strerror}; give --folder", NOT_SUBMITTED)
    click.echo(f"handing in {nodes} nodes x {gpus} GPUs; results in {folder}")
    resources = [f"--nodes={nodes}", f"--ntasks-per-node={gpus}", f"--gpus-per-node={gpus}", *options]
    done = _hand_in(folder, resources, [python, str(certificates or certificates_folder()), str(pairs)])
    text = output.read_text(errors="replace") if output.exists() else f"the job left no output in {output}"
    click.echo(text.rstrip())
    sys.exit(0 if done.returncode == 0 else 1)
