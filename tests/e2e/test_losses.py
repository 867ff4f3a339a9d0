"""The training's results don't change under Greyhound, to the last bit."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from greyhound.sandbox.cluster import Sandbox
from tests.e2e.training import read_log, srun_training

pytestmark = [pytest.mark.cluster, pytest.mark.training]
SLURM = ["-N2", "--ntasks-per-node=2"]
TRAIN = ["--tp", "2", "--pp", "2", "--steps", "6", "--layer-ms", "5"]


@pytest.fixture
def bare_sandbox() -> Iterator[Sandbox]:
    """A cluster whose plugstack doesn't know Greyhound."""
    cluster = Sandbox.up(f"bare-{os.getpid()}", nodes=2, plugin=False)
    yield cluster
    cluster.down()


def losses(sandbox: Sandbox, log: Path, *slurm: str) -> list[str]:
    done = srun_training(sandbox, log, slurm=[*SLURM, *slurm], train=TRAIN)
    assert done.returncode == 0, done.stderr[-2000:]
    return [row.loss_hex for row in read_log(log)]


def test_losses_are_bit_identical_on_off_and_without_the_plugin(
    sandbox: Sandbox, bare_sandbox: Sandbox, tmp_path: Path
) -> None:
    on = losses(sandbox, tmp_path / "on", "--greyhound=on")
    off = losses(sandbox, tmp_path / "off", "--greyhound=off")
    bare = losses(bare_sandbox, tmp_path / "bare")
    assert len(on) == 6
    assert on == off == bare
    assert len(set(on)) > 1  # it learns: the sequence is not a constant
