"""The site's kill switch and the owner's settings: at the analyzer, and what the job makes of them."""

import os
import time

import pytest

from greyhound.control.messages import IterationBatch, Report, Set
from greyhound.control.muting import SiteMute, read_mute
from greyhound.trace import layout
from tests.control.ring_program import CALLS, RingWriter
from tests.control.test_analyzer import Bench, of_kind
from tests.control.test_job import Bench as JobBench

S = 1_000_000_000


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    yield made
    made.analyzer.finish("end of the test")


def test_mute_file_is_told_by_its_first_line(tmp_path):
    file = tmp_path / "mute"
    assert read_mute(file) == ""
    assert read_mute(file / "below") == ""
    file.write_text("driver \x1b update\r\nmore")
    assert read_mute(file) == f"muted by the site ({file}: driver ? update)"
    file.write_text("")
    assert read_mute(file) == f"muted by the site ({file})"
    file.unlink()
    os.mkfifo(file)
    assert read_mute(file) == f"muted by the site ({file})"


def test_file_that_appears_and_goes_is_noticed_and_one_that_cannot_be_looked_at_changes_nothing(tmp_path, monkeypatch):
    file = tmp_path / "mute"
    mute = SiteMute(file, 0.01)

    def until(found):
        deadline = time.monotonic() + 20
        while bool(mute.reason) is not found:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    assert mute.reason == ""
    file.write_text("why")
    until(True)
    file.chmod(0)
    tmp_path.chmod(0)
    if os.geteuid() != 0:
        time.sleep(0.1)
        assert mute.reason
    tmp_path.chmod(0o700)
    file.unlink()
    until(False)
    mute.stop()


def test_site_mutes_all_rings_new_ones_too_and_the_gap_is_no_slow_down(bench, tmp_path):
    writer = RingWriter(tmp_path, 0)
    bench.train(writer, 60, 1.0)
    assert of_kind(bench.poll(2), IterationBatch)[-1].muted == ""
    bench.muted_by_site = "muted by the site (/m: why)"
    assert of_kind(bench.poll(), IterationBatch)[-1].muted == "muted by the site (/m: why)"
    assert writer.mode == layout.GH_MODE_MUTED
    (tmp_path / "other").mkdir()
    late = RingWriter(tmp_path / "other", 1)
    late.path.rename(tmp_path / "ring.1.1")
    bench.poll()
    assert late.mode == layout.GH_MODE_MUTED
    bench.t_ns += 300 * S
    writer.add_muted(300 * CALLS)
    bench.muted_by_site = ""
    bench.poll()
    assert writer.mode == late.mode == layout.GH_MODE_OBSERVE
    for _ in range(6):
        bench.train(writer, 10, 1.0)
        messages = bench.poll()
    assert of_kind(messages, Report) == []
    sample = next(rank for rank in of_kind(messages, IterationBatch)[-1].ranks if rank.rank == 0)
    assert sample.seconds == pytest.approx(1.0, rel=0.01)
    assert abs(sample.iteration - 420) <= 2


def test_owner_s_settings_reach_ranks_that_are_there_and_those_that_come(bench, tmp_path):
    writer = RingWriter(tmp_path, 0)
    bench.train(writer, 60, 1.0)
    bench.poll(2)
    bench.tell(Set("off", 0.1))
    bench.poll()
    muted = of_kind(bench.poll(), IterationBatch)[-1].muted
    assert (writer.mode, muted) == (layout.GH_MODE_MUTED, "muted by the job's owner (mode=off)")
    bench.tell(Set("on", 0.05))
    bench.poll(2)
    assert writer.mode == layout.GH_MODE_ON
    messages = []
    for seconds in (1.0, 1.08):
        for _ in range(6):
            bench.train(writer, 10, seconds)
            messages += bench.poll()
    (opened,) = of_kind(messages, Report)
    assert (opened.what, round(opened.slowdown, 2)) == ("opened", 1.08)


def test_job_says_when_all_its_nodes_are_muted_and_when_they_record_again():
    bench = JobBench()
    for node in (0, 1):
        bench.batch(node, 30)
    assert bench.tick()["state"] == "tracking"
    for node in (0, 1):
        bench.report(node, "ring0", "opened", 20, 24)
    assert bench.tick()["state"] == "suspect"
    bench.batch(0, 30, muted="muted by the site (/m: why)")
    bench.batch(1, 30)
    assert bench.tick()["state"] == "suspect"
    bench.batch(1, 30, muted="muted by the site (/m: why)")
    status = bench.tick()
    assert (status["state"], status["reason"]) == ("muted", "muted by the site (/m: why)")
    for node in (0, 1):
        bench.batch(node, 90)
    status = bench.tick()
    assert status["state"] == "suspect"
    assert bench.kinds[-3:] == ["muted", "unmuted", "tracking"]


def test_node_that_alone_is_muted_for_long_is_a_notice():
    bench = JobBench()
    for _ in range(15):
        bench.batch(0, 30, muted="muted by the site (/m)")
        bench.batch(1, 30)
        status = bench.tick()
    assert status["state"] == "tracking"
    assert bench.notices == ["1 of 2 nodes record nothing: node 0: muted by the site (/m)"]


def test_minor_level_of_half_the_ranks_is_one_event():
    bench = JobBench()
    for node in (0, 1):
        bench.batch(node, 30)
    bench.tick()
    for node in (0, 1):
        for key in ("ring0", "ring1"):
            bench.send(node, Report(key, 0, "minor", 100, S, 400, 2 * S, 1.0, 1.04, 1.04, 0.0))
    status = bench.tick()
    assert bench.kinds.count("minor") == 1
    found = {"onset": 100, "reported": 400, "ranks": 2, "healthy_s": 1.0, "level_s": 1.04, "level": 1.04}
    assert status["minor"] == [found]
    bench.send(0, Report("ring0", 0, "minor", 900, S, 999, 2 * S, 1.0, 1.05, 1.05, 0.0))
    assert bench.kinds.count("minor") == 1
    bench.job.finish(bench.now_s, "the step ended")
    assert bench.events[-1]["data"]["minor"] == [found]
