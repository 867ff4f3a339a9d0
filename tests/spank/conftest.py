"""Builds of the plugin's parts, a node process that only records how it was started, and a cluster."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from greyhound.sandbox.cluster import Sandbox
from tests.spank.rig import SPANK, Rig, build_hook, make, write_recorder

SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1"]
UNIT_SOURCES = ["options.c", "site.c", "ceiling.c", "mute.c", "preload.c", "spawn.c", "stepdir.c"]


@dataclass(frozen=True)
class Answer:
    """What a C program said."""

    code: int
    lines: list[str]


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    """A folder that every user may enter: jobs of another user start programs from it."""
    path = Path(tempfile.mkdtemp(prefix="greyhound-spank-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="session")
def unit(folder: Path) -> Callable[..., Answer]:
    """Run the Slurm-free parts of the plugin under the address and undefined-behaviour sanitizers."""
    program = folder / "unit_main"
    sources = [Path(__file__).with_name("unit_main.c"), *(SPANK / name for name in UNIT_SOURCES)]
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", *SANITIZERS, f"-I{SPANK}"]
    subprocess.run(["cc", *flags, "-o", program, *sources], check=True)

    def run(*arguments: str) -> Answer:
        done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=20, check=False)
        assert "Sanitizer" not in done.stderr, done.stderr
        assert done.returncode in (0, 1), done
        return Answer(done.returncode, done.stdout.splitlines())

    run.program = program  # type: ignore[attr-defined]
    return run


@pytest.fixture(scope="session")
def waiter(folder: Path) -> Path:
    """The waiter, built with the sanitizers and without Slurm's headers."""
    out = folder / "sanitized"
    make("waiter", f"OUT={out}", f"CFLAGS={' '.join(SANITIZERS)}")
    return out / "greyhound_waiter"


@pytest.fixture
def step_dir() -> Iterator[Path]:
    """A step directory as the plugin makes it."""
    path = Path(tempfile.mkdtemp(prefix=f"greyhound-{os.getuid()}-unit-", dir="/dev/shm"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def cluster(folder: Path) -> Iterator[Rig]:
    """A private cluster of two nodes whose plugin starts the recorder instead of Python."""
    if not shutil.which("slurmctld", path=f"{os.environ['PATH']}:/usr/sbin"):
        pytest.skip("Slurm is not installed")
    native = folder / "native"
    make("all", f"OUT={native}")
    build_hook(native)
    python = write_recorder(folder)
    sandbox = Sandbox.up(f"spank{os.getpid() % 100000}", nodes=2, gpus_per_node=0, plugin=False)
    try:
        yield Rig(sandbox, native, python, folder / "records")
    finally:
        sandbox.down()


@pytest.fixture
def rig(cluster: Rig) -> Iterator[Rig]:
    """The cluster with the usual plugstack.conf, no records, and a check that nothing is left."""
    cluster.reset()
    yield cluster
    cluster.assert_nothing_left()
