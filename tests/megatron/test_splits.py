"""Uneven micro-batches in a real megatron-core training: the same losses, gradients and weights as the even split."""

import json
from typing import Any

import pytest

from tests.training import launch

pytestmark = [pytest.mark.training, pytest.mark.usefixtures("native")]
PROGRAM = ["-m", "tests.megatron.worker"]
SWITCHES = {2: [[1, [6, 2]], [4, [7, 1]]], 3: [[1, [2, 4, 6]]], 4: [[1, [1, 4, 5, 6]]]}
SCENARIO = pytest.mark.scenario
LAYOUTS = {
    "plain": (2, 2, []),
    "distributed optimizer with overlap": (2, 2, ["--distributed", "--overlap"]),
    "average in the collective": (2, 2, ["--average"]),
    "per-token loss": (2, 2, ["--per-token-loss"]),
    "pipeline": (4, 2, ["--pp", "2"]),
    "three replicas": (3, 3, []),
    "four replicas": (4, 4, []),
    "interleaved": (4, 2, ["--pp", "2", "--vp", "2"]),
    "interleaved, distributed optimizer with overlap": (4, 2, ["--pp", "2", "--vp", "2", "--distributed", "--overlap"]),
}
QUICK = ("distributed optimizer with overlap",)


def train(count: int, plans: list[Any], *arguments: str) -> list[dict[str, Any]]:
    """What each rank printed last."""
    ended = launch.run([*PROGRAM, "--steps", "8", "--plans", json.dumps(plans), *arguments], count)
    return [json.loads(end.output.splitlines()[-1]) for end in ended]


def assert_same(uneven: list[dict[str, Any]], even: list[dict[str, Any]]) -> None:
    for one, other in zip(uneven, even, strict=True):
        for what in ("losses", "norms", "weights"):
            assert one[what] == pytest.approx(other[what], rel=1e-5, nan_ok=True), what


def layouts() -> list[Any]:
    return [pytest.param(name, marks=[] if name in QUICK else [SCENARIO]) for name in LAYOUTS]


@pytest.mark.parametrize("name", layouts())
def test_an_uneven_split_trains_like_the_even_one(name: str) -> None:
    count, replicas, arguments = LAYOUTS[name]
    multiple = 2 if "--vp" in arguments else 1
    plans = [[1, [6, 2]], [4, [2, 6]]] if multiple == 2 else SWITCHES[replicas]
    even = train(count, [], *arguments)
    uneven = train(count, plans, *arguments)
    assert_same(uneven, even)
    seen = [rank["splits"] for rank in uneven]
    assert all(splits == seen[0] for splits in seen), "ranks switched at different iterations"
    assert [4] * replicas in seen[0] and all(split in seen[0] for _, split in plans)
    assert all(rank["told"]["microbatches"] == plans[-1][1] for rank in uneven)
    assert {tuple(split) for rank in even for split in rank["splits"]} == {(4,) * replicas}


@SCENARIO
def test_a_rank_without_a_page_leaves_the_split_even() -> None:
    for rank in train(2, SWITCHES[2], "--blind", "1"):
        assert {tuple(split) for split in rank["splits"]} == {(4, 4)}
        assert "the hook isn't in this process" in rank["inactive"]
