"""This run against earlier ones, as the master does it: when it is compared, what is said, what is kept."""

import json
import os

import pytest

from greyhound.control import lines
from greyhound.control.messages import Hello, IterationBatch, RankSample
from greyhound.control.record import open_record
from greyhound.control.run_history import FIRST_ITERATION, RunHistory
from greyhound.control.runs import RunBook, RunRecord
from tests.control.ring_program import RingWriter
from tests.control.test_analyzer import Bench as AnalyzerBench
from tests.control.test_analyzer import of_kind
from tests.control.test_job import Bench as JobBench
from tests.control.test_master import Bench as MasterBench


class Bench(JobBench):
    """A job of two nodes with a book."""

    def __init__(self, folder, job="7"):
        super().__init__()
        self.job.name = type(self.job.name)(job, "0", 0)
        self.folder = folder
        self.history = RunHistory(RunBook(folder), self.job, self.emit)

    def go(self, iteration=50, healthy_s=1.0, prints=("aa", "bb"), nodes=("n1", "n2"), seconds=8, ended=()):
        for _ in range(seconds):
            for index, name in enumerate(nodes):
                ranks = [
                    RankSample(f"ring{i}", 2 * index + i, True, True, iteration, healthy_s, healthy_s, 0, text)
                    for i, text in enumerate(prints)
                ]
                ranks += [RankSample(key, 0, False, False, iteration, 0.0, 0.0, 0, "") for key in ended]
                self.send(index, Hello(name, "host", 1))
                self.send(index, IterationBatch("tracking", ranks))
            self.tick()
            self.history.step(self.now_s)
        return [event for event in self.events if event["kind"] == "runs"]


def book(folder):
    return RunBook(folder).read()


def earlier(folder, times_s):
    for number, healthy_s in enumerate(times_s):
        bench = Bench(folder, str(100 + number))
        bench.go(healthy_s=healthy_s)
        bench.history.finish()


def test_ranks_that_ended_are_none_of_the_run_s(tmp_path):
    bench = Bench(tmp_path)
    bench.go(ended=("ring8", "ring9"))
    (row,) = book(tmp_path)
    assert (row.ranks, row.nodes) == (4, ("n1", "n2"))


def test_slower_run_says_so_once_and_names_the_new_node(tmp_path):
    earlier(tmp_path, (1.0, 1.01, 0.99))
    bench = Bench(tmp_path)
    (event,) = bench.go(healthy_s=1.08, nodes=("n1", "n7"), seconds=30)
    assert event["data"]["slowdown"] == pytest.approx(1.08 / 0.995, abs=1e-3)
    text = lines.event_line(event)
    assert text.startswith("this run is 1.09x slower than 3 earlier runs with the same calls (1.08 s an iteration")
    assert text.endswith("last: job 102); nodes that are new: n7")
    assert "runs" in lines.FOR_THE_USER
    status = bench.tick()
    assert status["notices"] == [text]
    assert status["runs"]["new_nodes"] == ["n7"] and len(status["fingerprint"]) == 16
    json.dumps(status)
    assert [row.job for row in book(tmp_path)] == ["100", "101", "102", "7"]
    bench.go(nodes=("n1",), seconds=2)
    bench.job.nodes.clear()  # one rank ended before the others
    assert bench.tick()["fingerprint"] == status["fingerprint"]  # after the ranks ended


@pytest.mark.parametrize(
    "go", [{"healthy_s": 1.04}, {"healthy_s": 1.5, "prints": ("aa", "cc")}, {"healthy_s": 1.5, "nodes": ("n1",)}]
)
def test_as_fast_other_work_and_other_size_say_nothing(tmp_path, go):
    earlier(tmp_path, (1.0,))
    bench = Bench(tmp_path)
    assert bench.go(**go) == []
    assert len(book(tmp_path)) == 2 and not bench.notices


@pytest.mark.parametrize(
    "go", [{"iteration": FIRST_ITERATION - 1}, {"prints": ("aa", "")}, {"healthy_s": 0.0}, {"seconds": 4}]
)
def test_nothing_is_compared_before_all_is_known(tmp_path, go):
    Bench(tmp_path).go(**go)
    assert book(tmp_path) == []


def test_other_work_in_one_run_is_compared_by_itself(tmp_path):
    earlier(tmp_path, (1.0,))
    bench = Bench(tmp_path)
    bench.go()
    assert bench.go(healthy_s=2.0, prints=("cc", "dd")) == []
    assert len(bench.go(healthy_s=1.2)) == 1


def test_healthy_time_that_became_another_is_kept_at_the_end(tmp_path):
    bench = Bench(tmp_path)
    bench.go(healthy_s=1.0)
    bench.go(healthy_s=0.9)
    bench.history.finish()
    bench.history.finish()
    assert [row.healthy_s for row in book(tmp_path)][:2] == [1.0, 0.9]
    bench = Bench(tmp_path, "8")
    bench.go(healthy_s=0.9)
    assert bench.job.runs["slowdown"] == 1.0 and bench.job.runs["runs"] == 1


@pytest.mark.parametrize("trouble", ["file", "link", "open to others"])
def test_a_foreign_book_is_one_line_in_the_log(tmp_path, caplog, trouble):
    folder = tmp_path / f"runs-{os.geteuid()}"
    if trouble == "file":
        folder.write_text("")
    elif trouble == "link":
        folder.symlink_to("/etc")
    else:
        folder.mkdir()
        folder.chmod(0o777)
    bench = Bench(tmp_path)
    assert bench.go(seconds=20) == []
    assert caplog.text.count("isn't compared with earlier ones") == 1
    assert not bench.notices


def test_the_record_says_which_directory_it_is_in(tmp_path, monkeypatch):
    monkeypatch.setattr("greyhound.control.record.DEFAULT_RECORD_DIR", str(tmp_path / "home"))
    name = JobBench().job.name
    assert open_record(tmp_path / "records", name, tmp_path).root == tmp_path / "records"
    (tmp_path / "file").write_text("")
    assert open_record(tmp_path / "file", name, tmp_path).root == tmp_path / "home"
    (tmp_path / "home").rename(tmp_path / "other")
    (tmp_path / "home").write_text("")
    assert open_record(tmp_path / "file", name, tmp_path).root is None


def test_the_master_keeps_the_run_in_the_record_directory(tmp_path, monkeypatch):
    bench = MasterBench(tmp_path, root=tmp_path / "record")
    RunBook(tmp_path / "record").add(RunRecord("6", "0", 0, "x", 1.0, 1, ("n1",), "2026-01-01T00:00:00Z"))
    clock = [1000.0]
    monkeypatch.setattr("greyhound.control.master.time.time", lambda: clock[0])
    bench.send(Hello("n1", "host", 1))
    for _ in range(10):
        bench.send(IterationBatch("tracking", [RankSample("r", 0, True, True, 50, 1.0, 1.0, 0, "aa")]))
        bench.master.round(bench.bus, 0.0)
        clock[0] += 1.0
    bench.master.finish("the end")
    assert [row.job for row in book(tmp_path / "record")] == ["6", "7"]


def test_a_rank_has_a_fingerprint_soon_and_the_same_after_a_gap(tmp_path):
    bench = AnalyzerBench(tmp_path)
    writer = RingWriter(tmp_path, 0)
    bench.poll()
    found = []
    for _ in range(8):
        bench.train(writer, 10, 1.0)
        found += [batch.ranks[0].fingerprint for batch in of_kind(bench.poll(), IterationBatch)]
    bench.analyzer.finish("end of the test")
    assert found[3] and set(found[3:]) == {found[3]}
    assert len(found[3]) == 16
