"""A node's part in profiling, over synthetic rings: the control word, the window, what is sent, what goes wrong."""

import json
import os
import time

import pytest

from greyhound.control import profile_node
from greyhound.control.fields import LIST_LIMIT
from greyhound.control.messages import AbWindow, Message, MessageError, Set, decode, encode
from greyhound.control.profile_message import ROWS_A_MESSAGE, ProfileDone, ProfileOrder, in_messages
from greyhound.control.profile_node import ProfileNode
from greyhound.localize.model import Communicator, RankProfile, TimedCall
from tests.control.ring_program import CALLS, COMM, RingWriter
from tests.control.test_analyzer import Bench, of_kind

S, MS = 1_000_000_000, 1_000_000
RUN = "0123456789abcdef"
NO_PID = 1 << 23  # above what the kernel gives


class Clock:
    """The clocks of the node, moved by the test; CLOCK_MONOTONIC and the analyzer's rounds go together."""

    def __init__(self, monkeypatch):
        self.skew_ns = 0
        self.now_ns = 1000 * S
        monkeypatch.setattr("greyhound.control.profile_node.time.monotonic_ns", lambda: self.now_ns)
        monkeypatch.setattr("greyhound.control.profile_node.time.time_ns", self.wall_ns)

    def wall_ns(self):
        return 1_700_000_000 * S + self.now_ns + self.skew_ns


class ProfileBench(Bench):
    """Rounds of a tenth of a second; `train` makes its calls between them."""

    def __init__(self, folder, clock, node):
        super().__init__(folder)
        self.folder = folder
        self.analyzer._profile = node
        self.clock = clock
        self.writers = []

    def add(self, rank):
        writer = RingWriter(self.folder, rank, os.getpid() if not self.writers else NO_PID + rank)
        writer.join(4, rank)
        self.writers.append(writer)
        return writer

    def run(self, iterations, timed=True, seconds=0.4):
        """Iterations of CALLS calls, each of 10 ms on the GPU, the rest being the rank's own."""
        heard = []
        for _ in range(iterations):
            for call in range(CALLS):
                self.clock.now_ns += int(seconds * S / CALLS)
                for writer in self.writers:
                    entry_ns = self.clock.now_ns - 15 * MS
                    seq = writer.call(1024 * (1 + call), entry_ns)
                    if timed and writer.profile:
                        writer.timing(seq, 1024, entry_ns, self.clock.now_ns - 10 * MS, 10 * MS)
            self.now_s = self.clock.now_ns / S
            self.analyzer.poll(self.now_s)
            heard += self.poll_master()
        return heard

    def order(self, seconds=4.0, lead_s=0.0, run=RUN, **given):
        given = {"budget": 1300, "one_in": 1, "calls": 256, **given}
        self.tell(ProfileOrder(run, "test", self.clock.wall_ns() + int(lead_s * S), seconds, **given))

    def answer(self, heard=(), count=1):
        """Poll on until so many answers are there."""
        for _ in range(100):
            found = of_kind(heard, ProfileDone)
            if len(found) >= count and found[-1].last:
                return found
            heard = [*heard, *self.run(1)]
            time.sleep(0.01)
        raise AssertionError("no answer")


@pytest.fixture
def bench(tmp_path, monkeypatch):
    made = ProfileBench(tmp_path, Clock(monkeypatch), ProfileNode())
    made.master.beat()
    writer = made.add(5)
    made.run(40)
    yield made
    made.analyzer.finish("end of the test")
    assert writer.profile == 0


def test_the_word_is_set_for_the_window_and_the_profile_is_sent(bench):
    (writer,) = bench.writers
    bench.order()
    bench.run(4)
    word = writer.profile
    assert (word & 0xFFFFFFFF, word >> 32 & 0xFFFF) == (1300, 1)
    (done,) = bench.answer()
    assert writer.profile == 0
    assert (done.run, done.why_not, len(done.profiles)) == (RUN, "", 1)
    profile = done.profiles[0].profile(3)
    assert (profile.node, profile.rank, profile.key, profile.bus) == (3, 5, writer.path.name, "0000:00:00.0")
    assert profile.timed and profile.work
    assert len(profile.iteration_s) in (8, 9)
    assert profile.iteration_s == pytest.approx([0.4] * len(profile.iteration_s), rel=1e-6)
    assert profile.own_s == pytest.approx([0.4 - CALLS * 0.01] * len(profile.own_s), rel=1e-6)
    assert profile.comms == (Communicator(COMM, 4, 5),)
    assert {call.end_ns - call.start_ns for call in profile.calls} == {10 * MS}


def test_each_window_has_an_epoch_of_its_own(bench):
    epochs = []
    for number in range(2):
        bench.order(run=f"{number:016x}")
        bench.run(4)
        epochs.append(bench.writers[0].profile >> 48)
        bench.answer()
    assert epochs[0] != epochs[1]


@pytest.mark.parametrize("skew_s", [-360, 360, 30 * 24 * 3600])
def test_a_node_whose_clock_is_wrong_begins_at_once(bench, skew_s):
    bench.clock.skew_ns = skew_s * S
    bench.tell(ProfileOrder(RUN, "test", bench.clock.wall_ns() - skew_s * S, 4.0, 1300, 1, 256))
    bench.run(4)
    assert bench.writers[0].profile
    (done,) = bench.answer()
    assert not done.why_not and len(done.profiles[0].iteration_s) >= 8


def test_a_clock_that_jumps_within_the_window_moves_no_call(bench):
    bench.order()
    bench.run(5)
    bench.clock.skew_ns = 360 * S
    (done,) = bench.answer()
    profile = done.profiles[0].profile(0)
    assert len(profile.iteration_s) in (8, 9)
    assert max(c.end_ns for c in profile.calls) - min(c.entry_ns for c in profile.calls) < 5 * S


def test_an_order_of_long_ago_from_another_redis_gives_one_window(bench):
    for number in range(20):
        bench.order(run=f"{number:016x}", lead_s=-1000.0 * (20 - number))
    (done,) = bench.answer()
    assert done.run == f"{19:016x}"
    bench.order(run=f"{19:016x}")
    assert not of_kind(bench.run(10), ProfileDone)


def test_one_that_is_under_way_is_not_disturbed(bench):
    bench.order()
    bench.run(4)
    bench.order(run="other")
    refused, done = bench.answer(count=2)
    assert refused.run == "other" and "another profile" in refused.why_not
    assert done.run == RUN and not done.why_not


def test_muting_ends_it_and_says_why(bench):
    bench.order()
    bench.run(4)
    bench.muted_by_site = "muted by the site (/etc/greyhound/mute)"
    heard = bench.run(1)
    assert bench.writers[0].profile == 0
    (done,) = bench.answer(heard)
    assert "muted by the site" in done.why_not and done.profiles == []


def test_the_owners_off_and_a_comparison_refuse_it(bench):
    bench.tell(Set("off", 0.1))
    bench.run(4)
    bench.order()
    assert "mode=off" in bench.answer()[0].why_not
    bench.tell(Set("observe", 0.1))
    bench.run(4)
    bench.tell(AbWindow("ab", 0, True, time.time_ns(), 100.0))
    bench.run(4)
    bench.order(run="second")
    assert "greyhound ab" in bench.answer()[0].why_not


def test_a_comparison_that_begins_within_ends_it(bench):
    bench.order()
    bench.run(4)
    bench.tell(AbWindow("ab", 0, False, bench.clock.wall_ns() + 2 * S, 5.0))
    (done,) = bench.answer()
    assert bench.writers[0].profile == 0 and "a comparison began" in done.why_not


def test_a_dead_master_ends_it(bench, monkeypatch):
    bench.order()
    bench.run(4)
    assert bench.writers[0].profile
    monkeypatch.setattr(bench.bus, "master_alive", lambda: False)
    bench.run(4)
    assert bench.writers[0].profile == 0


def test_the_end_of_the_job_ends_it(bench):
    bench.order()
    bench.run(4)
    bench.analyzer.finish("the step ended")
    (done,) = of_kind(bench.poll_master(), ProfileDone)
    assert done.why_not == "the job ended"


def test_a_rank_that_ends_within_gives_what_there_is(bench):
    second = bench.add(6)
    bench.run(20)
    bench.order()
    bench.run(8)
    second.end()
    bench.writers.remove(second)
    (done,) = bench.answer()
    assert sorted(len(row.iteration_s) for row in done.profiles)[1] in (8, 9)
    assert len(done.profiles) == 2


def test_a_rank_whose_ring_breaks_within_harms_no_other(bench):
    bench.add(6)
    bench.run(20)
    bench.order()
    bench.run(8)
    watch = next(watch for watch in bench.analyzer._watches.values() if watch.facts().rank == 6)
    watch.close()
    del bench.analyzer._watches[watch.key]
    (done,) = bench.answer()
    assert {row.rank for row in done.profiles} == {5, 6}


def test_a_ring_that_is_let_go_within_is_timed_no_more(bench):
    bench.order()
    bench.run(4)
    (watch,) = bench.analyzer._watches.values()
    assert bench.writers[0].profile != 0
    del bench.analyzer._watches[watch.key]
    watch.close()
    watch.close()
    assert bench.writers[0].profile == 0


def test_too_short_a_window_and_no_rank_are_said(bench, tmp_path_factory, monkeypatch):
    bench.order(seconds=0.2)
    (done,) = bench.answer()
    assert done.profiles == [] and done.why_not == "rank 5: no whole iteration in the window"
    empty = ProfileBench(tmp_path_factory.mktemp("empty"), bench.clock, ProfileNode())
    empty.master.beat()
    empty.run(2)
    empty.order()
    assert empty.answer()[0].why_not == "no rank here"
    empty.analyzer.finish("end of the test")


def test_calls_that_were_overwritten_spoil_it(bench):
    bench.order()
    bench.run(4)
    for _ in range(5000):
        bench.writers[0].call(1024, bench.clock.now_ns)
    assert "lost" in bench.answer()[0].why_not


def test_what_is_gathered_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(profile_node, "LEAST_RECORDS", 60)
    bench = ProfileBench(tmp_path, Clock(monkeypatch), ProfileNode(most_records=60))
    bench.master.beat()
    bench.add(0)
    bench.run(40)
    bench.order(seconds=20.0)
    (done,) = bench.answer(bench.run(60))
    assert len(done.profiles[0].iteration_s) < 60 / CALLS
    bench.analyzer.finish("end of the test")


def test_absurd_orders_are_brought_to_reason(bench):
    bench.order(budget=1 << 60, one_in=0, calls=-5, seconds=-1.0)
    bench.answer()
    bench.order(budget=-1, one_in=1 << 40, run="second", seconds=1e11)
    bench.run(4)
    assert bench.writers[0].profile >> 32 & 0xFFFF == 0xFFFF
    bench.clock.now_ns += 61 * S
    bench.answer()
    assert bench.writers[0].profile == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_computation_that_fails_is_an_answer(bench, monkeypatch):
    monkeypatch.setattr(profile_node, "in_messages", failing_once(profile_node.in_messages))
    bench.order()
    (done,) = bench.answer()
    assert "can't be computed" in done.why_not


def failing_once(function):
    left = [1]

    def wrapped(*arguments):
        if left:
            left.pop()
            raise SystemExit
        return function(*arguments)

    return wrapped


def test_evidence_of_the_window_comes_along(tmp_path, monkeypatch):
    asked = []

    def evidence(begin_s, end_s):
        asked.append(end_s - begin_s)
        return {"gpu": [{"bus": "0000:0b:00.0", "sm_mhz": 1410, "power_w": None}]}

    bench = ProfileBench(tmp_path, Clock(monkeypatch), ProfileNode(evidence))
    bench.master.beat()
    bench.add(0)
    bench.run(40)
    bench.order()
    assert bench.answer()[0].evidence["gpu"][0]["sm_mhz"] == 1410
    assert asked == [pytest.approx(4.0)]
    bench.analyzer.finish("end of the test")


# -- the message ----------------------------------------------------------------------------------------------------


def profile(rank=0, calls=3):
    timed = [TimedCall(COMM, n, 1, 1 << 40, -1, 5 * S + n, 5 * S + n + 7, 5 * S + n + 9) for n in range(calls)]
    times = ((0.5, 0.6), (0.25, 0.25), (0.0, 0.125), (0.0, 0.0))
    return RankProfile(4, "ring", rank, "bus", "work", True, *times, (Communicator(COMM, 8, rank),), tuple(timed))


def sent(done):
    return json.loads(encode(Message(4, 1, 2, done)))


def test_profiles_survive_the_way():
    (done,) = in_messages(RUN, [profile(), profile(1, calls=0)], "why", {"a": [1, None, {"b": True}]})
    heard = decode(json.dumps(sent(done))).data
    assert heard == done
    assert [row.profile(4) for row in heard.profiles] == [profile(), profile(1, calls=0)]


def test_many_ranks_come_in_several_messages_of_bounded_size():
    parts = in_messages(RUN, [profile(rank, calls=128) for rank in range(512)], "why")
    assert [len(part.profiles) for part in parts] == [ROWS_A_MESSAGE] * 8
    assert [part.last for part in parts] == [False] * 7 + [True]
    assert sum(len(encode(Message(0, 1, 2, part))) for part in parts) < 512 * 128 * 50


def spoilt(path, value):
    (done,) = in_messages(RUN, [profile()], "")
    raw = sent(done)
    at = raw["data"]
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    return json.dumps(raw)


ROW = ("profiles", 0)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ((*ROW, "own_s"), [0.25, float("nan")], "own_s"),
        ((*ROW, "own_s"), [0.25, float("inf")], "own_s"),
        ((*ROW, "own_s"), [0.25], "different lengths"),
        ((*ROW, "own_s"), [0.1] * 5000, "own_s"),
        ((*ROW, "calls"), [], "columns"),
        ((*ROW, "calls", 0), [0, 0, 1], "isn't listed"),
        ((*ROW, "calls", 1), [0], "columns"),
        ((*ROW, "calls", 5), [0.5, 1, 2], "whole"),
        ((*ROW, "comms"), [[1, 2]], "triples"),
        ((*ROW, "comms"), [[COMM, 2, 0], [COMM, 2, 1]], "triples"),
        ((*ROW, "timed"), 1, "timed"),
        (("profiles",), [{}], "missing"),
        (("profiles",), [[]] * LIST_LIMIT, "profiles"),
        (("evidence",), {"x": float("nan")}, "evidence"),
        (("evidence",), {"x": [[[[[[[[1]]]]]]]]}, "levels"),
        (("evidence",), {"x": list(range(5000))}, "values"),
        (("evidence",), [], "evidence"),
        (("last",), None, "last"),
    ],
)
def test_a_spoilt_profile_is_refused(path, value, said):
    with pytest.raises(MessageError, match=said):
        decode(spoilt(path, value))
