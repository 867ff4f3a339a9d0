"""Calls captured into CUDA graphs are counted at each launch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hook.conftest import NATIVE, Runner, compile_c, shared
from tests.hook.ring_view import GH


def build(runner: Runner, name: str, *flags: str) -> Path:
    root = runner.built.root / name
    if (root / "graphs").exists():
        return root / "graphs"
    version = f"-Wl,--version-script={NATIVE / 'fake_cudart.map'}"
    cudart = shared(root / "libcudart.so.12", *flags, version, NATIVE / "fake_cudart.c", soname="libcudart.so.12")
    rpath = f"-Wl,-rpath,{root}:{runner.built.nccl.parent}"
    return compile_c(root / "graphs", NATIVE / "graphs.c", cudart, runner.built.nccl, rpath)


@pytest.fixture
def program(runner: Runner) -> Path:
    return build(runner, "cuda")


@pytest.mark.parametrize("flags", [(), ("-DWITHOUT_CAPTURE_ID",)])
def test_captured_calls_count_at_each_launch(runner: Runner, flags: tuple[str, ...]) -> None:
    assert runner.clean(build(runner, "cuda" + "-old" * len(flags), *flags)) == "launches 11\n"
    ring = runner.ring()
    comm = int(ring.comms[0]["hash"])
    assert ring.counts == {
        (comm, GH["COUNT_COLLECTIVE"], -1): 2 + 10 * 3 + 1,  # two on the stream that isn't captured
        (comm, GH["COUNT_SEND"], 2): 10 * 2,
    }
    assert ring.hook_flags == 0
    captured = ring.records["flags"] & GH["REC_CAPTURED"] != 0
    assert list(captured) == [False] + [True] * 5 + [False] * 11 + [True] + [False] * 2
    launches = ring.records[ring.records["op"] == GH["OP_GRAPH_LAUNCH"]]
    assert list(launches["aux"]) == [5] * 10 + [1] and list(launches["bytes"]) == [200] * 10 + [40]
    assert set(launches["comm"]) == {comm}


def test_a_graph_of_unknown_content_is_flagged(runner: Runner, program: Path) -> None:
    runner.clean(program, "unknown")
    assert runner.ring().hook_flags == GH["FLAG_GRAPH_UNKNOWN"]


def test_device_and_bus_id(runner: Runner, program: Path) -> None:
    runner.clean(program, "unknown")
    ring = runner.ring()
    assert ring.cuda_device == 1 and ring.text(96, 32) == "0000:3C:00.0"
