"""Routine profiles of a run that is slower than earlier ones: all GPUs alike, and no node is blamed."""

import pytest

from greyhound.control.lines import event_line
from greyhound.control.run_history import RunHistory
from greyhound.control.runs import RunBook, RunRecord, of_job
from tests.control.profiler_bench import SLOW, ProfilerBench


@pytest.fixture
def bench(tmp_path, monkeypatch):
    return ProfilerBench(tmp_path, monkeypatch)


def with_earlier_runs(bench, folder, healthy_s):
    """Three runs of the same work in the owner's book."""
    book = RunBook(folder)
    for number in range(3):
        work = of_job(["work"] * 4)
        book.add(RunRecord(str(number), "0", 0, work, healthy_s, 4, ("n0", "n1"), "2026-05-01T00:00:00.000Z"))
    bench.master._history = RunHistory(book, bench.master.job, bench.master._emit)


def test_all_gpus_slower_than_in_earlier_runs_are_said_once_and_no_node_is_blamed(bench, tmp_path):
    with_earlier_runs(bench, tmp_path, 0.8)
    assert bench.run(120) == ["profile", "profile", "verdict"]
    (event,) = bench.events("verdict")
    (suspect,) = event["data"]["suspects"]
    assert (suspect["kind"], suspect["nodes"], suspect["ratio"]) == ("gpu", [], 1.25)
    assert event["component"] == {"kind": "gpu", "node": None, "bus": None, "rank": None, "peer": None}
    assert event_line(event) == "slow without a change: GPUs of all nodes: 1.25x, explains 100 %"
    assert any("earlier runs of the same work" in reason for reason in suspect["reasons"])
    assert bench.run(1300)[3:] == ["profile", "profile"]


@pytest.mark.parametrize("healthy_s", [0.97, 1.2])
def test_a_run_as_fast_as_earlier_ones_has_no_verdict(bench, tmp_path, healthy_s):
    with_earlier_runs(bench, tmp_path, healthy_s)
    assert bench.run(120) == ["profile"]


def test_one_slow_gpu_is_named_before_all(bench, tmp_path):
    with_earlier_runs(bench, tmp_path, 0.8)
    bench.judge.verdicts = [SLOW]
    assert bench.run(120) == ["profile", "verdict", "profile"]


def test_earlier_runs_of_other_work_say_nothing(bench, tmp_path):
    with_earlier_runs(bench, tmp_path, 0.8)
    bench.run(45)
    bench.work = "other"
    assert "verdict" not in bench.run(300)
