"""Installing as the README says: `make -C spank install PREFIX=` with `prefix=`, and the wheel that pip builds."""

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from greyhound.sandbox.cluster import Sandbox

REPOSITORY = Path(__file__).resolve().parents[2]
RING = 'while [ ! -e "$GREYHOUND_DIR" ]; do sleep 0.1; done; echo "$LD_PRELOAD"'


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """PREFIX as an admin makes it; its Python is this one's."""
    done = subprocess.run(
        ["make", "-C", str(REPOSITORY / "spank"), "install", f"PREFIX={tmp_path}"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return tmp_path


@pytest.fixture
def cluster() -> Iterator[Sandbox]:
    cluster = Sandbox.up(f"prefix-{os.getpid()}", nodes=1)
    yield cluster
    cluster.down()


@pytest.mark.cluster
def test_a_prefix_has_all_that_a_watched_step_needs(prefix: Path, cluster: Sandbox) -> None:
    plugin = prefix / "lib" / "greyhound" / "spank_greyhound.so"
    cluster.layout.plugstack.write_text(f"optional {plugin} prefix={prefix} default=off\n")
    done = cluster.srun("--greyhound=on", "sh", "-c", RING)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == str(prefix / "lib" / "greyhound" / "libgreyhound_hook.so")


def test_pip_builds_the_hook_with_a_compiler_alone(tmp_path: Path) -> None:
    source = tmp_path / "source"
    clone = ["git", "clone", "-q", "--no-hardlinks", str(REPOSITORY), str(source)]
    subprocess.run(clone, check=True, capture_output=True)
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(tmp_path)]
    done = subprocess.run([*pip, str(source)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("greyhound-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    native = {"libgreyhound_hook.so", "libgreyhound_reader.so", "greyhound_ring.h"}
    assert {f"greyhound/_native/{name}" for name in native} <= names
