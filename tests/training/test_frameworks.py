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
    expected = losses(tmp_path / "train_ddp", "train_ddp")
    assert expected[-1] < expected[0] - 0.3
    for program in ("train_fsdp2", "train_hsdp"):
        assert losses(tmp_path / program, program) == pytest.approx(expected, rel=1e-3), program


def test_experts_learn_and_a_loop_with_pauses_goes_on(tmp_path):
    pauses = ["--evaluate-every", "2", "--checkpoint-every", "3", "--checkpoint-dir", str(tmp_path / "saved")]
    learnt = losses(tmp_path / "log", "train_moe", *pauses)
    assert len(learnt) == 6
    assert learnt[-1] < learnt[0] - 0.3
    assert sorted(path.name for path in (tmp_path / "saved").iterdir()) == ["3", "6"]


def test_a_world_that_cant_be_divided_is_refused():
    programs = ("train_hsdp", "train_moe")
    started = [launch.start(["-m", f"greyhound.sandbox.{program}", *SHORT], 1)[0] for program in programs]
    for end in launch.finish(started):
        assert end.status == 1
        assert "needs a multiple of 2 ranks, not 1" in end.errors
