"""A thousand kills of our processes at random moments (make scenarios); `--kills N` or `--kills-s SECONDS` for fewer.

What earlier runs killed stays, in build/endings.json; with another `--kills-seed` the moments are others.
"""

import os
import sys
from collections.abc import Iterator, Mapping

import pytest

from greyhound.sandbox import truth
from tests.e2e.training import free_port
from tests.endings.bed import Bed, Step, open_bed
from tests.endings.killer import OURS, Small, Training, campaign
from tests.scenarios.endings_page import Fire, add_kills

pytestmark = [pytest.mark.cluster, pytest.mark.scenario]


class TorchDdp:
    """A real one, with torch and all that it loads."""

    name = "torch DDP: two ranks, a small GPT"
    iterations = 150
    # It imports for ten seconds, in which there is nothing else to kill than waiters.
    sought: Mapping[str, float] = {**OURS, "greyhound_waiter": 0.02}

    def start(self, bed: Bed, watched: bool) -> Step:
        words = ["-m", "greyhound.sandbox.train_ddp", "--steps", str(self.iterations), "--json-log", "FOLDER/log"]
        variables = ["MASTER_ADDR=127.0.0.1", f"MASTER_PORT={free_port()}", "OMP_NUM_THREADS=1"]
        return bed.srun(watched, command=["env", *variables, sys.executable, *words], slurm=["--mem=2000"])

    def losses(self, step: Step) -> list[str]:
        lines = (step.folder / "log").read_text().splitlines()
        return [f"{row.iteration} {row.loss_hex}" for row in truth.parse_training_log(lines, 0.0)]


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    with open_bed(f"kills{os.getpid() % 10000}") as opened:
        yield opened


def fire(bed: Bed, training: Training, at_once: int, seed: int, kills: int, most_s: float) -> None:
    """Kill so many, or as many as there is time for, and keep what came of it."""
    killed, steps = campaign(bed, training, at_once, seed, kills, most_s)
    print(f"{training.name}: {killed.total()} kills in {steps} steps: {dict(killed)}")
    assert set(killed) <= set(OURS) and killed.total() > 0
    add_kills(Fire(training.name, steps, dict(killed)), bed.sandbox.state.release)


def test_many_kills_at_random_moments_change_nothing(bed: Bed, request: pytest.FixtureRequest) -> None:
    option = request.config.getoption
    fire(bed, Small(), 3, option("--kills-seed"), option("--kills"), float(option("--kills-s")))


def test_kills_under_a_torch_training_change_nothing(bed: Bed, request: pytest.FixtureRequest) -> None:
    option = request.config.getoption
    fire(bed, TorchDdp(), 1, option("--kills-seed"), option("--kills") // 20, float(option("--kills-s")))
