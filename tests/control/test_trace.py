"""`greyhound trace record` in the node and at the master: files, bounds, answers."""

import time

import pytest

from greyhound.control import lines
from greyhound.control.messages import Hello, IterationBatch, RankSample, TraceDone, TraceOrder
from greyhound.control.requests import submit
from greyhound.control.trace_node import TraceNode
from greyhound.control.trace_run import ANSWER_S, TraceRun
from greyhound.trace.dump import read_dump
from tests.control.ring_program import CALLS, RingWriter
from tests.control.test_analyzer import Bench, of_kind
from tests.control.test_master import Bench as MasterBench

RUN = "0123456789abcdef"


def node_bench(tmp_path, folder, **bounds):
    (tmp_path / "step").mkdir()
    bench = Bench(tmp_path / "step", TraceNode(3, folder, **bounds))
    return bench, RingWriter(tmp_path / "step", 5)


def answer(bench, heard=()):
    """Poll until the files are written; `heard` has come before."""
    for _ in range(100):
        found = of_kind([*heard, *bench.poll()], TraceDone)
        if found:
            return found[0]
        time.sleep(0.02)
    raise AssertionError("no answer")


def record(bench, writer, seconds, rounds=6):
    bench.poll()
    bench.train(writer, 20, 1.0)
    bench.poll()
    bench.tell(TraceOrder(RUN, seconds))
    heard = bench.poll()
    for _ in range(rounds):
        bench.train(writer, 10, 1.0)
        heard += bench.poll()
    return heard


def test_the_calls_of_the_time_asked_for_are_in_the_file(tmp_path):
    bench, writer = node_bench(tmp_path, tmp_path)
    heard = record(bench, writer, 2.5)
    done = answer(bench, heard)
    (name,) = done.files
    assert name == f"trace.01234567.node3.rank5.pid{writer.path.name.split('.')[1]}.ghdump"
    assert not done.why_not
    dump = read_dump(tmp_path / name)
    assert len(dump.records) == done.calls == 30 * CALLS - CALLS * 10
    assert (dump.facts["world_rank"], dump.facts["run"]) == (5, RUN)
    assert list(dump.gaps) == []
    bench.analyzer.finish("end of the test")


def test_a_node_stops_by_itself_at_its_limit(tmp_path):
    bench, writer = node_bench(tmp_path, tmp_path, most_bytes=100 * 64)
    heard = record(bench, writer, 500.0)
    done = answer(bench, heard)
    assert "limit" in done.why_not
    assert 100 <= done.calls <= 100 + 10 * CALLS
    bench.analyzer.finish("end of the test")


def test_what_cannot_be_written_is_said(tmp_path):
    bench, writer = node_bench(tmp_path, tmp_path / "missing")
    heard = record(bench, writer, 1.5)
    assert "No such file" in answer(bench, heard).why_not
    bench.tell(TraceOrder(RUN, 1.0))
    bench.poll(3)
    bench.analyzer.finish("end of the test")


def test_no_room_leaves_nothing_half_written(tmp_path, monkeypatch):
    monkeypatch.setattr("greyhound.trace.dump.np.savez_compressed", full_disk)
    bench, writer = node_bench(tmp_path, tmp_path)
    heard = record(bench, writer, 1.5)
    done = answer(bench, heard)
    assert "No space left" in done.why_not and done.files == []
    assert [path.name for path in tmp_path.iterdir()] == ["step"]
    bench.analyzer.finish("end of the test")


def full_disk(file, **arrays):
    file.write(b"a part")
    raise OSError(28, "No space left on device")


def test_second_order_and_no_folder_are_answered(tmp_path):
    bench, _ = node_bench(tmp_path, None)
    bench.poll()
    bench.tell(TraceOrder(RUN, 1.0))
    assert "can't be written on this node" in answer(bench).why_not
    bench.analyzer.finish("end of the test")
    node = TraceNode(0, tmp_path)
    node.take(TraceOrder(RUN, 60.0), 0.0)
    node.take(TraceOrder("other", 60.0), 0.0)
    (refused,) = node.step(1.0, ())
    assert refused.run == "other" and "another recording" in refused.why_not


def test_the_end_of_the_job_writes_what_there_is(tmp_path):
    bench, writer = node_bench(tmp_path, tmp_path)
    record(bench, writer, 500.0, rounds=2)
    bench.analyzer.finish("the step ended")
    (done,) = of_kind(bench.poll_master(), TraceDone)
    assert done.why_not == "the job ended"
    assert len(read_dump(tmp_path / done.files[0]).records) == done.calls > 0


def test_a_mute_within_is_a_gap_of_the_file(tmp_path):
    bench, writer = node_bench(tmp_path, tmp_path)
    record(bench, writer, 5.5, rounds=2)
    bench.muted_by_site = "why"
    bench.poll()
    bench.muted_by_site = ""
    bench.poll()
    bench.train(writer, 1, 1.0)
    dump = read_dump(tmp_path / answer(bench).files[0])
    assert list(dump.gaps) == [10 * CALLS]
    bench.analyzer.finish("end of the test")


# -- the master -----------------------------------------------------------------------------------------------------


def test_the_master_gathers_the_answers_of_the_nodes_it_asked():
    run = TraceRun(RUN, 10.0, {0: "n1", 1: "n2"}, 1000.0)
    run.take(0, TraceDone(RUN, ["a", "b"], 7, ""))
    run.take(0, TraceDone(RUN, ["c"], 9, ""))
    run.take(2, TraceDone(RUN, ["d"], 9, ""))
    run.take(1, TraceDone("other", ["d"], 9, ""))
    assert not run.is_over(1000.0 + 10.0 + ANSWER_S - 1)
    assert run.is_over(1000.0 + 10.0 + ANSWER_S + 1)
    rows = run.result()["nodes"]
    assert [(row["node"], row["files"], row["why_not"]) for row in rows] == [
        ("n1", ["a", "b"], ""),
        ("n2", [], "no answer"),
    ]
    text = lines.event_line({"kind": "trace", "data": run.result()})
    assert text == "7 calls recorded in 2 files; n2: no answer"
    run.take(1, TraceDone(RUN, [], 0, ""))
    assert run.is_over(1001.0)


@pytest.fixture
def master(tmp_path, monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr("greyhound.control.master.time.time", lambda: clock[0])
    bench = MasterBench(tmp_path)

    def rounds(count):
        for _ in range(count):
            clock[0] += 1.0
            bench.master.round(bench.bus, 0.0)
        return [event for event in bench.read() if event["kind"] in ("setting", "trace")]

    bench.rounds = rounds
    return bench


def test_a_request_becomes_an_order_and_its_answers_an_event(master):
    submit(master.record, "trace", {"seconds": 2.0})
    (refused,) = master.rounds(2)
    assert "no rank is seen" in refused["data"]["text"] and not refused["data"]["applied"]
    master.send(Hello("n1", "host", 1))
    master.send(IterationBatch("tracking", [RankSample("r", 0, True, True, 5, 1.0, 1.0, 0)]))
    submit(master.record, "trace", {"seconds": 2.0})
    taken = master.rounds(2)[-1]["data"]
    assert taken["text"] == "recording the calls on 1 node for 2 s"
    for kind in ("trace", "ab"):
        submit(master.record, kind, {})
    assert [event["data"]["applied"] for event in master.rounds(2)[-2:]] == [False, False]
    master.send(TraceDone(taken["request"], ["f"], 3, ""))
    (event,) = [event for event in master.rounds(2) if event["kind"] == "trace"]
    assert event["data"]["nodes"] == [{"node": "n1", "files": ["f"], "calls": 3, "why_not": ""}]


def test_the_end_of_the_job_says_what_came_of_a_recording(master):
    master.send(Hello("n1", "host", 1))
    master.send(IterationBatch("tracking", [RankSample("r", 0, True, True, 5, 1.0, 1.0, 0)]))
    submit(master.record, "trace", {})
    master.rounds(2)
    master.master.finish("the end")
    assert [event["kind"] for event in master.read()][-2:] == ["trace", "end"]
