"""Late data, slow storage and ragged micro-batches as the trainings have them."""

import os
from pathlib import Path
from statistics import fmean, pstdev

import pytest

from greyhound.sandbox import slowed as slowed_module
from greyhound.sandbox.data import Reader, stretch_of
from greyhound.sandbox.errors import SandboxError
from greyhound.sandbox.page import StandinPage
from greyhound.sandbox.page_users import gpu_of, node_of, users
from greyhound.sandbox.slowed import Slowed

GPUS = ["n1:0", "n1:1", "n2:0", "n2:1"]


@pytest.fixture
def page(tmp_path, monkeypatch):
    path = tmp_path / "p.page"
    StandinPage.create(path, GPUS).close()
    monkeypatch.setenv("GREYHOUND_STANDIN_PAGE", str(path))
    monkeypatch.setenv("GREYHOUND_STANDIN_NODE", "n2")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with StandinPage.open(path) as opened:
        yield opened


@pytest.fixture
def naps(monkeypatch):
    taken = []
    monkeypatch.setattr(slowed_module.time, "sleep", taken.append)
    return taken


def test_delays_are_read_anew_and_only_by_whom_they_concern(page, naps):
    mine, other = Slowed(1), Slowed(0)
    page.set_input("n2:1", 0.5)
    page.set_storage(2.0)
    mine.read_data(), other.read_data(), mine.write_checkpoint(), other.write_checkpoint()
    assert naps == [0.5, 0.0, 2.0, 2.0]
    page.heal()
    mine.read_data(), mine.write_checkpoint()
    assert naps[4:] == [0.0, 0.0]


def test_without_a_page_nothing_is_late(monkeypatch, naps):
    for value in ("", "/nonexistent/page"):
        monkeypatch.setenv("GREYHOUND_STANDIN_PAGE", value)
        Slowed(0).read_data()
        Slowed(0).write_checkpoint()
    assert naps == []


def test_bad_delays(page):
    for bad in (-1.0, float("nan"), 1e9):
        with pytest.raises(SandboxError, match="delay"):
            page.set_storage(bad)
        with pytest.raises(SandboxError, match="delay"):
            page.set_input("n1:0", bad)


def test_which_gpu_a_rank_has():
    node = {"SLURMD_NODENAME": "n2", "SLURM_LOCALID": "1"}
    assert node_of(node) == "n2"
    assert gpu_of(node, GPUS) == "n2:1"
    assert gpu_of({**node, "CUDA_VISIBLE_DEVICES": "1"}, GPUS) == "n2:1"
    assert gpu_of({**node, "LOCAL_RANK": "0"}, GPUS) == "n2:0"
    assert gpu_of({"SLURMD_NODENAME": "n9"}, GPUS) == ""
    assert gpu_of({}, ["localhost:0"]) == "localhost:0"


def test_nobody_uses_a_page_that_only_stands_in_the_environment(page):
    assert users(Path(os.environ["GREYHOUND_STANDIN_PAGE"]), GPUS) == []


def test_ragged_micro_batches_are_the_same_in_every_run_and_average_to_one():
    stretches = [stretch_of(1, index, 0.3) for index in range(4000)]
    assert stretches[:50] == [stretch_of(1, index, 0.3) for index in range(50)]
    assert fmean(stretches) == pytest.approx(1.0, abs=0.02)
    assert pstdev(stretches) == pytest.approx(0.3, rel=0.1)
    assert stretch_of(1, 5, 0.0) == 1.0


def test_the_reader_tells_of_the_micro_batch_that_was_read_last(naps, monkeypatch):
    monkeypatch.delenv("GREYHOUND_STANDIN_PAGE", raising=False)
    reader = Reader(lambda index: index * 10, 1, 0.5, Slowed(0))
    assert reader.stretch() == 1.0
    for index, batch in enumerate(reader.batches(3, 4), start=3):
        assert batch == 10 * index
        assert reader.stretch() == stretch_of(1, index, 0.5)
