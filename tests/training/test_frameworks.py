"""The sandbox's trainings without Megatron: real losses, whatever the framework."""

import json
from pathlib import Path

import pytest

from tests.training import launch

pytestmark = pytest.mark.training
SHORT = ["--steps", "6", "--layer-ms", "0", "--micro-batches", "2"]


def losses(log: Path, program: str, *arguments: str) -> list[float]:
    launch.run(["-m", f"greyhound.sandbox.{program}", *SHORT, *arguments, "--json-log", str(log)], ranks=2)
    return [json.loads(line)["loss"] for line in log.read_text().splitlines()]


def test_sharded_and_replicated_models_learn_alike(tmp_path):
    """Same weights, samples and optimizer; the gradients' norm is never clipped so early."""
    expected = losses(tmp_path / "gloo", "train_ddp", "--backend", "gloo")
    assert expected[-1] < expected[0] - 0.3
    for program in ("train_ddp", "train_fsdp2", "train_hsdp"):
        assert losses(tmp_path / program, program) == pytest.approx(expected, rel=1e-3), program


def test_experts_learn_and_a_loop_with_pauses_goes_on(tmp_path):
    pauses = ["--evaluate-every", "2", "--checkpoint-every", "3", "--checkpoint-dir", str(tmp_path / "saved")]
    plain = losses(tmp_path / "plain", "train_moe")
    paused = losses(tmp_path / "paused", "train_moe", *pauses)
    assert plain == paused
    assert plain[-1] < plain[0] - 0.3
    assert sorted(path.name for path in (tmp_path / "saved").iterdir()) == ["3", "6"]


@pytest.mark.parametrize("program", ["train_hsdp", "train_moe"])
def test_a_world_that_cant_be_divided_is_refused(program):
    (end,) = launch.finish(launch.start(["-m", f"greyhound.sandbox.{program}", *SHORT], 1))
    assert end.status == 1
    assert "needs a multiple of 2 ranks, not 1" in end.errors
