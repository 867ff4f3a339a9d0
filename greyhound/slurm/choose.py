"""Which client: pyslurm where it is installed, fits this Slurm's release and can be imported, else the commands."""

import importlib
import importlib.metadata
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from greyhound.slurm.client import Client, CommandClient, SlurmError
from greyhound.slurm.pyslurm_client import PyslurmClient

IMPORT_TIMEOUT_S = 15.0
_RELEASE = re.compile(r"\b(\d{2})\.(\d{2})\b", re.ASCII)
# As this process would import it. libslurm may end the process that loads it (no slurm.conf): that must not be ours.
_PROBE = "import sys; sys.path[:] = sys.argv[1:]; import pyslurm; pyslurm.Job, pyslurm.Jobs, pyslurm.Node"


def connect(environment: Mapping[str, str] | None = None) -> tuple[Client, str]:
    """A client, and why it isn't pyslurm's (empty if it is)."""
    commands = CommandClient(environment=environment)
    why = why_no_pyslurm(commands)
    if why:
        return commands, why
    try:
        return PyslurmClient(importlib.import_module("pyslurm")), ""
    except ImportError as error:
        return commands, f"pyslurm can't be imported: {error}"


def why_no_pyslurm(commands: CommandClient) -> str:
    """Why pyslurm can't be used here; empty if it can. A site without it pays nothing for the question."""
    try:
        own = importlib.metadata.version("pyslurm")
    except importlib.metadata.PackageNotFoundError:
        return "pyslurm isn't installed"
    try:
        said = commands.ask("squeue", "--version")
    except SlurmError as error:
        return f"Slurm's release isn't known: {error}"
    if release(own) is None or release(own) != release(said):
        return f"pyslurm {own} is for another release than {said.strip()}"
    return _why_not_importable()


def release(text: str) -> tuple[int, int] | None:
    """(year, month) in `slurm 25.11.2` or `25.11.2`."""
    found = _RELEASE.search(text)
    return (int(found[1]), int(found[2])) if found else None


def _why_not_importable() -> str:
    command: list[Any] = [sys.executable, "-I", "-c", _PROBE, *sys.path]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=dict(os.environ),
            timeout=IMPORT_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"pyslurm can't be tried: {error}"
    said = done.stderr.decode(errors="replace").strip().splitlines()
    return (
        f"pyslurm can't be imported: {said[-1] if said else f'exit code {done.returncode}'}" if done.returncode else ""
    )
