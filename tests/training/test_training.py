"""The sandbox's training: real losses, modelled time."""

import json
import statistics
from pathlib import Path

import pytest

from greyhound.sandbox.page import StandinPage
from tests.training import launch

pytestmark = pytest.mark.training

NODE = {"GREYHOUND_STANDIN_NODE": "t1"}
PROGRAM = ["-m", "greyhound.sandbox.train"]
CONFIGURATIONS = {
    "tp": ["--tp", "2"],
    "pp": ["--pp", "2"],
    "dp": [],
    "dp-distributed-optimizer": ["--distributed-optimizer"],
    "dp-overlap": ["--distributed-optimizer", "--overlap"],
}


@pytest.fixture
def page(tmp_path):
    with StandinPage.create(tmp_path / "page", ["t1:0", "t1:1"]) as made:
        yield made


def train(log: Path, *arguments: str, ranks: int = 2, extra: dict[str, str] | None = None) -> list[dict]:
    launch.run([*PROGRAM, *arguments, "--json-log", str(log)], ranks, extra)
    return [json.loads(line) for line in log.read_text().splitlines()]


def bits(iterations: list[dict]) -> list[str]:
    return [entry["loss_hex"] for entry in iterations]


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_losses_fall_and_are_the_same_bits_with_and_without_slow_gpu(name, tmp_path, page):
    arguments = [*CONFIGURATIONS[name], "--steps", "8", "--micro-batches", "3", "--layer-ms", "4"]
    healthy = train(tmp_path / "healthy", *arguments)
    page.set_speed("t1:1", 0.5)
    slow = train(tmp_path / "slow", *arguments, extra={**NODE, "GREYHOUND_STANDIN_PAGE": str(page.path)})
    assert len(healthy) == 8
    assert bits(healthy) == bits(slow)
    assert healthy[-1]["loss"] < healthy[0]["loss"] - 0.3


def test_losses_agree_between_layouts(tmp_path):
    """Same weights and samples: data parallel halves see what one rank sees in turn."""
    one = train(tmp_path / "one", "--steps", "3", "--micro-batches", "4", "--layer-ms", "0", ranks=1)
    two = train(tmp_path / "two", "--steps", "3", "--micro-batches", "2", "--layer-ms", "0", ranks=2)
    tensor = train(tmp_path / "tp", "--tp", "2", "--steps", "3", "--micro-batches", "4", "--layer-ms", "0")
    for other in (two, tensor):
        assert [e["loss"] for e in other] == pytest.approx([e["loss"] for e in one], rel=1e-5)


def test_modelled_time_dominates_and_follows_the_speed_page(tmp_path, page):
    arguments = [*PROGRAM, "--pp", "2", "--steps", "30", "--json-log", str(tmp_path / "log")]
    processes = launch.start(arguments, 2, {**NODE, "GREYHOUND_STANDIN_PAGE": str(page.path)})
    try:
        reader = processes[1].stdout
        lines = []
        for line in iter(reader.readline, ""):
            lines.append(line)
            if line.startswith("iteration 10/"):
                page.set_speed("t1:0", 0.5)
            if line.startswith("iteration 20/"):
                page.set_speed("t1:0", 1.0)
    finally:
        ends = launch.finish(processes)
    assert [end.status for end in ends] == [0, 0]
    times = [json.loads(line)["time_s"] for line in (tmp_path / "log").read_text().splitlines()]
    before, during, after = (statistics.median(times[part]) for part in (slice(3, 10), slice(11, 20), slice(21, 30)))
    announced_s = float(lines[0].split("modelled device time ")[1].split(" ms")[0]) / 1e3
    # 1.85x on a quiet machine; whatever else slows it adds to all three.
    assert announced_s >= 0.5 * min(before, after), (announced_s, times)
    assert during > 1.4 * before and during > 1.4 * after, times


def test_a_failing_rank_ends_all(tmp_path):
    """The peers of a killed rank leave with an error instead of waiting for it."""
    processes = launch.start([*PROGRAM, "--tp", "2", "--steps", "1000", "--layer-ms", "1"], 2)
    for line in iter(processes[1].stdout.readline, ""):
        if line.startswith("iteration 3/"):
            processes[0].kill()
            break
    ends = launch.finish(processes, timeout_s=60)
    assert ends[1].status not in (0, -9), ends[1]


@pytest.mark.parametrize(
    ("arguments", "ranks", "text"),
    [
        (["--tp", "2"], 1, "--tp 2 --pp 1 needs a multiple of 2 ranks, not 1"),
        (["--tp", "1", "--dp", "3"], 2, "--tp 1 --pp 1 --dp 3 needs 3 ranks, not 2"),
        (["--pp", "2", "--layers", "3"], 2, "--layers 3 can't be divided over --pp 2 stages"),
        (["--steps", "0"], 1, "0 isn't at least 1"),
    ],
)
def test_impossible_layouts_are_refused(arguments, ranks, text):
    for end in launch.finish(launch.start([*PROGRAM, *arguments], ranks)):
        assert end.status == 2
        assert text in end.errors
