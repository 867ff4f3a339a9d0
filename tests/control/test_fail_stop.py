"""Fail-stops from ring to event: who stands is told once, who is waited for is named, and it is taken back."""

import os
from dataclasses import replace

import pytest

from greyhound.control.lines import event_line
from greyhound.control.messages import Message, MessageError, decode, encode
from greyhound.control.stand_message import RANKS_A_MESSAGE, Stand, StandingRow
from greyhound.control.stand_node import StandNode, transferred_bytes
from greyhound.trace import layout
from tests.control.profiler_bench import ProfilerBench
from tests.control.ring_program import COMM, RingWriter
from tests.control.test_analyzer import Bench, of_kind

S = 1_000_000_000
COLLECTIVE = layout.GH_COUNT_COLLECTIVE


# -- the node -------------------------------------------------------------------------------------------------------


@pytest.fixture
def node(tmp_path):
    bench = Bench(tmp_path)
    bench.writer = RingWriter(tmp_path, 3)
    bench.writer.join(4, 1)
    bench.poll()
    bench.train(bench.writer, 20, 1.0)
    bench.poll()
    (bench.watch,) = bench.analyzer._watches.values()
    yield bench
    bench.analyzer.finish("end of the test")


def stand_for(bench, seconds):
    """As if nothing had moved for so long."""
    bench.watch._moved_s -= seconds
    return of_kind(bench.poll(), Stand)


def test_a_rank_that_stands_is_told_once_and_so_is_that_it_goes_on(node):
    node.writer.count(0, COLLECTIVE, -1, 120)
    node.writer.count(1, layout.GH_COUNT_SEND, 2, 60)
    node.writer.enter(2, 120, layout.GH_OP_ALL_REDUCE, 1)
    assert stand_for(node, 0) == []
    (stand,) = stand_for(node, 25)
    (row,) = stand.still
    assert (row.rank, row.comms) == (3, [[COMM, 4, 1]])
    assert row.counts == [[COMM, COLLECTIVE, -1, 120], [COMM, layout.GH_COUNT_SEND, 2, 60]]
    assert row.in_flight[0][:3] == [COMM, 120, layout.GH_OP_ALL_REDUCE] and row.in_flight[0][3] > 0
    assert row.last == f"all_reduce 119 of communicator {COMM:016x}, 6144 bytes"
    assert stand_for(node, 25) == []
    node.train(node.writer, 1, 1.0)
    assert of_kind(node.poll(2), Stand) == [Stand([], [row.key])]


def test_slow_iterations_are_no_standing(node):
    node.train(node.writer, 1, 300.0)
    node.poll(2)
    assert stand_for(node, 100) == []


def test_a_rank_that_ended_stands_no_more(node):
    node.writer.end()
    assert stand_for(node, 100) == []


def test_a_rank_that_never_trained_does_not_stand(tmp_path):
    bench = Bench(tmp_path)
    RingWriter(tmp_path, 3)
    bench.poll()
    (bench.watch,) = bench.analyzer._watches.values()
    assert stand_for(bench, 1000) == []
    bench.analyzer.finish("end of the test")


class Standing:
    def __init__(self, number):
        self.key, self.rank = f"ring{number}", number
        self.iteration_s, self.has_ended, self.pid = 1.0, False, 4711

    def still_s(self):
        return 100.0

    def standing(self):
        return StandingRow(self.key, self.rank, 0, [], [], [], "")


def test_many_ranks_come_in_parts():
    node = StandNode()
    parts = node.step(0.0, [Standing(number) for number in range(512)])
    assert {len(part.still) for part in parts} == {RANKS_A_MESSAGE} and len(parts) == 16
    assert node.step(1.0, [Standing(number) for number in range(512)]) == []


def test_a_rank_that_saves_a_file_does_not_stand(monkeypatch):
    written = [0]
    monkeypatch.setattr("greyhound.control.stand_node.transferred_bytes", lambda pid: written[0])
    node, rank = StandNode(), Standing(3)
    (told,) = node.step(0.0, [rank])
    assert [row.key for row in told.still] == ["ring3"]
    written[0] += 50 << 20
    assert node.step(1.0, [rank]) == [Stand([], ["ring3"])]
    for second in range(2, 100):
        written[0] += (4 << 20) * (second % 3)  # between two files it writes nothing for a while
        assert node.step(float(second), [rank]) == []
    assert node.step(105.0, [rank]) == []
    assert len(node.step(130.0, [rank])) == 1


def test_what_a_process_reads_and_writes_is_counted(tmp_path):
    before = transferred_bytes(os.getpid())
    (tmp_path / "file").write_bytes(bytes(3 << 20))
    assert transferred_bytes(os.getpid()) - before >= 3 << 20
    assert transferred_bytes(1 << 23) == 0


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"counts":[[1,1,-1,5]]', '"counts":[[1,1,-1]]'),
        ('"counts":[[1,1,-1,5]]', '"counts":[[1,1,-1,5.5]]'),
        ('"comms":[[1,4,0]]', '"comms":[[1,4]]'),
        ('"comms":[[1,4,0]]', '"comms":NaN'),
        ('"since_ns":7', '"since_ns":1e400'),
        ('"still":', '"stil":'),
    ],
)
def test_a_spoilt_message_is_refused(old, new):
    text = encode(Message(0, 1, 2, Stand([StandingRow("k", 0, 7, [[1, 4, 0]], [[1, 1, -1, 5]], [], "")], [])))
    assert old in text and decode(text)
    with pytest.raises(MessageError):
        decode(text.replace(old, new))


# -- the master -----------------------------------------------------------------------------------------------------


@pytest.fixture
def job(tmp_path, monkeypatch):
    bench = ProfilerBench(tmp_path, monkeypatch)
    bench.run(30)
    return bench


def stands(bench, *counts, skew_s=0.0, key="ring{}"):
    """Ranks with so many collectives on the world's communicator have stood for 20 s; None: this one moves."""
    for rank, count in enumerate(counts):
        if count is not None:
            since_ns = int((bench.wall_s - 20 + skew_s) * S)
            world, inside = (
                [[7, 4, rank]],
                [[7, count, layout.GH_OP_ALL_REDUCE, 20 * S]] if count == max_of(counts) else [],
            )
            row = StandingRow(key.format(rank), rank, since_ns, world, [[7, COLLECTIVE, -1, count]], inside, "the last")
            bench.send(rank // 2, Stand([row], []))


def max_of(counts):
    return max(count for count in counts if count is not None)


def test_the_rank_that_does_not_come_is_named_and_it_is_taken_back(job):
    stands(job, 50, 50, 49, 50)
    job.run(30)
    assert job.events("fail_stop") == []
    job.run(30)
    (event,) = job.events("fail_stop")
    assert event["component"] == {"kind": "rank", "node": "n1", "bus": None, "rank": 2, "peer": None}
    assert (event["data"]["rank"], event["data"]["waiting"]) == (2, [0, 1, 3])
    assert event_line(event).startswith("fail-stop on n1: rank 2 does not come to ")
    assert "the last" in event_line(event)
    assert job.status()["fail_stop"]["rank"] == 2
    job.run(60)
    assert len(job.events("fail_stop")) == 1
    job.send(1, Stand([], ["ring2"]))
    job.run(3)
    over = job.events("fail_stop")[-1]
    assert over["data"]["over"] and "rank 2 goes on after" in event_line(over)
    assert over["component"] is None and job.status()["fail_stop"] is None


def test_a_pause_of_all_is_none(job):
    stands(job, 50, 50, 50, 50)
    job.run(300)
    assert job.events("fail_stop") == []


def test_one_that_still_works_is_not_blamed(job):
    stands(job, 50, 50, None, 50)
    job.run(300)
    assert job.events("fail_stop") == []


def test_after_a_long_pause_more_patience_is_shown(job):
    stands(job, 50, 50, 49, 50)
    job.run(30)
    for rank in range(4):
        job.send(rank // 2, Stand([], [f"ring{rank}"]))
    job.run(3)
    stands(job, 60, 60, 59, 60)
    job.run(100)
    assert job.events("fail_stop") == []
    job.run(100)
    assert len(job.events("fail_stop")) == 1


@pytest.mark.parametrize("skew_s", [-360.0, 360.0, -1e6])
def test_a_node_with_another_clock_brings_no_haste(job, skew_s):
    job.healthy_s = 10.0
    stands(job, 50, 50, 49, 50, skew_s=skew_s)
    job.run(5)
    before = [event["data"]["seconds"] for event in job.events("fail_stop")]
    job.run(100)
    assert len(job.events("fail_stop")) == 1 and all(seconds <= 75 for seconds in before)


def test_an_unmonitored_or_ended_job_has_none(job):
    stands(job, 50, 50, 49, 50)
    job.master.lost("Redis is out of reach")
    job.master._fail_stops.step(job.wall_s + 500, job.mono_s + 500)
    assert job.events("fail_stop") == []


def restart(bench):
    """As an elastic job does: all ranks end, others take their places."""
    bench.alive = 0
    bench.run(3)
    bench.alive, batch = 4, bench.batch

    def renamed(node):
        found = batch(node)
        return replace(found, ranks=[replace(sample, key=f"new-{sample.key}") for sample in found.ranks])

    bench.batch = renamed


def test_a_restarted_job_has_none_of_the_ranks_that_ended(job):
    stands(job, 50, 50, 49, 50)
    restart(job)
    job.run(300)
    assert job.events("fail_stop") == []


def test_a_fail_stop_that_a_restart_ended_is_over_and_leaves_room_for_another(job):
    stands(job, 50, 50, 49, 50)
    job.run(60)
    restart(job)
    job.run(10)
    first, over = job.events("fail_stop")
    assert not first["data"]["over"] and over["data"]["over"]
    assert "rank 2 ended, and nobody waits for it any more" in event_line(over)
    assert job.status()["fail_stop"] is None
    stands(job, 9, 9, 9, 8, key="new-ring{}")
    job.run(100)
    assert [event["data"]["rank"] for event in job.events("fail_stop")[2:]] == [3]
