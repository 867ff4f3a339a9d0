import os
import sys
from pathlib import Path

import psutil
import pytest

from greyhound.sandbox.cluster import Sandbox, take_down
from greyhound.sandbox.layout import SHM

COMMAND = [sys.executable, "-c", "from greyhound.cli.main import main; main(prog_name='greyhound')"]


@pytest.fixture
def name(request):
    """A sandbox name of this test alone; whatever it left is taken down at the end."""
    chosen = f"t{os.getpid()}-{abs(hash(request.node.name)) % 100_000}"
    yield chosen
    take_down(chosen)


@pytest.fixture(scope="module")
def sandbox():
    """One sandbox for the tests that leave it whole."""
    chosen = f"t{os.getpid()}-shared"
    try:
        yield Sandbox.up(chosen, nodes=2)
    finally:
        take_down(chosen)


@pytest.fixture
def remains():
    """A function: all that can still be seen of a sandbox (processes, files, shared memory, mounts)."""

    def look(layout):
        found = [str(path) for path in (layout.directory, *SHM.glob(f"*{layout.name}*")) if path.exists()]
        found += [line for line in Path("/proc/self/mounts").read_text().splitlines() if str(layout.directory) in line]
        return found + [str(process) for process in psutil.process_iter() if str(layout.directory) in _words(process)]

    return look


def _words(process):
    try:
        return " ".join([*process.cmdline(), *process.environ().values()])
    except psutil.Error:
        return ""


@pytest.fixture
def cli():
    """The `greyhound` command as a list to put arguments behind."""
    return COMMAND
