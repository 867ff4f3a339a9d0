"""When the master profiles, what it compares, what it says: a job of two nodes over a bus in memory, clocks by hand."""

import time

import pytest

from greyhound.config import Settings
from greyhound.control.arguments import NodeArguments
from greyhound.control.bus import MemoryBus
from greyhound.control.events import read_events
from greyhound.control.lines import event_line
from greyhound.control.master import Master
from greyhound.control.messages import Bye, Hello, IterationBatch, Message, RankSample, Report, decode, encode
from greyhound.control.names import StepName
from greyhound.control.profile_message import ProfileOrder, in_messages
from greyhound.control.profile_run import calls_sent, one_in, window_s
from greyhound.control.record import Record
from greyhound.control.requests import submit
from greyhound.control.run_history import RunHistory
from greyhound.control.runs import RunBook, RunRecord, of_job
from greyhound.control.status import read_status
from greyhound.localize.model import RankProfile, Suspect, Verdict

S = 1_000_000_000
GPU = Suspect("gpu", (1,), (2,), "0000:0b:00.0", -1, 1.9, 0.97, 0.9, ("own time 1.9 x", "clocks: power cap"))
SLOW = Verdict((GPU,), 0.97)


class Judge:
    """Gives the verdicts in turn, the last one for ever; keeps what it was asked."""

    def __init__(self):
        self.verdicts = [Verdict()]
        self.asked = []

    def __call__(self, now, reference, lost_s):
        self.asked.append((list(now), reference, lost_s))
        verdict = self.verdicts.pop(0) if len(self.verdicts) > 1 else self.verdicts[0]
        if isinstance(verdict, BaseException):
            raise verdict
        return verdict


class ProfilerBench:
    def __init__(self, folder, monkeypatch, nodes=2):
        (folder / "step").mkdir()
        (folder / "record").mkdir()
        self.record = folder / "record"
        self.live = folder / "step" / "status.json"
        self.judge = Judge()
        arguments = NodeArguments(folder / "step", 0, nodes, "n[0-1]", StepName("7", "0", 0), Settings(), None, 4)
        self.mono_s, self.wall_s = 5000.0, 1_700_000_000.0
        monkeypatch.setattr("greyhound.control.master.time.time", lambda: self.wall_s)
        monkeypatch.setattr("greyhound.control.master.time.monotonic", lambda: self.mono_s)
        self.master = Master(arguments, Record(self.record, "", None), judge=self.judge)
        self.bus = MemoryBus()
        self.ears = MemoryBus(self.bus)
        self.iteration, self.seconds, self.healthy_s = 5, 1.0, 1.0
        self.calls, self.alive, self.work = 600, 4, "work"
        self.answering = {0, 1}
        self.orders = []
        for node in range(2):
            self.send(node, Hello(f"n{node}", "host", 1))

    def send(self, node, data):
        self.bus.publish("up", encode(Message(node, 1, 0, data)))

    def batch(self, node):
        ranks = [rank for rank in (2 * node, 2 * node + 1) if rank < self.alive]
        rest = (self.iteration, self.seconds, self.healthy_s, 0, self.work, self.calls)
        return IterationBatch("tracking", [RankSample(f"ring{rank}", rank, True, True, *rest) for rank in ranks])

    def run(self, seconds):
        """Rounds of a second; nodes answer orders at the end of their window."""
        for _ in range(round(seconds)):
            self.mono_s += 1.0
            self.wall_s += 1.0
            self.iteration += 1
            for node in range(2):
                self.send(node, self.batch(node))
            self.listen()
            self.master.round(self.bus, 0.0)
            for _ in range(200):  # the judge's thread
                judging = self.master._profiler._judging
                if judging is None or judging.is_over:
                    break
                time.sleep(0.005)
        return self.kinds()

    def listen(self):
        for text in self.ears.read("down"):
            data = decode(text).data
            if isinstance(data, ProfileOrder):
                self.orders.append((data, self.mono_s))
        if self.orders and self.mono_s >= self.orders[-1][1] + self.orders[-1][0].seconds + 1:
            for node in self.answering:
                self.answer(node, self.orders[-1][0].run)

    def answer(self, node, run, why_not=""):
        ranks = [rank for rank in (2 * node, 2 * node + 1) if rank < self.alive]
        for part in in_messages(run, [profile(rank) for rank in ranks], why_not):
            self.send(node, part)

    def slow(self, number=1):
        self.seconds = 1.9
        for rank in range(4):
            since = self.iteration - 5
            at = (since, int(self.wall_s - 8) * S, self.iteration, int(self.wall_s) * S)
            self.send(rank // 2, Report(f"ring{rank}", rank, "opened", *at, 1.0, 1.9, 1.9, 0.0))

    def recover(self):
        self.seconds = 1.0
        for rank in range(4):
            at = (0, 0, self.iteration, int(self.wall_s) * S)
            self.send(rank // 2, Report(f"ring{rank}", rank, "closed", *at, 1.0, 1.9, 1.9, 20.0))

    def events(self, *kinds):
        return [event for event in read_events(self.record / "events.jsonl") if event["kind"] in kinds]

    def kinds(self):
        return [event["kind"] for event in self.events("profile", "verdict", "suspect", "recovered")]

    def status(self):
        self.master.publish_status(force=True)
        return read_status(self.live)


def profile(rank):
    times = ((1.0, 1.0), (0.5, 0.5), (0.0, 0.0), (0.0, 0.0))
    return RankProfile(0, f"ring{rank}", rank, f"0000:{rank:02x}:00.0", "work", True, *times)


@pytest.fixture
def bench(tmp_path, monkeypatch):
    return ProfilerBench(tmp_path, monkeypatch)


def test_a_healthy_job_is_profiled_and_nothing_is_said(bench):
    assert bench.run(30) == ["profile"]
    ((order, _),) = bench.orders
    assert (order.reason, order.seconds, order.one_in, order.calls) == ("routine", 5.0, 1, 256)
    (event,) = bench.events("profile")
    assert (event["data"]["ranks"], event["data"]["timed"], event["data"]["problems"]) == (4, 4, [])
    assert event_line(event) == "4 ranks profiled for 5 s, 2 iterations"
    ((now, reference, lost_s),) = bench.judge.asked
    assert ([p.rank for p in now], [p.node for p in now], reference, lost_s) == ([0, 1, 2, 3], [0, 0, 1, 1], None, None)
    assert bench.run(700) == ["profile", "profile"]
    assert [p.rank for p in bench.judge.asked[1][1]] == [0, 1, 2, 3]
    assert bench.status()["verdict"] is None


def test_slow_from_the_start_is_named_once_and_withdrawn_when_it_is_gone(bench):
    bench.judge.verdicts = [SLOW]
    assert bench.run(30) == ["profile", "verdict"]
    (event,) = bench.events("verdict")
    assert event["component"] == {"kind": "gpu", "node": "n1", "bus": "0000:0b:00.0", "rank": 2, "peer": None}
    assert event["episode"] is None
    text = "slow without a change: n1 GPU 0000:0b:00.0 (rank 2): 1.90x, explains 97 %"
    assert event_line(event) == bench.status()["verdict"]["text"] == text
    assert bench.run(600) == ["profile", "verdict", "profile"]
    bench.judge.verdicts = [Verdict(abstained="no rank is slower")]
    assert bench.run(600)[3:] == ["profile", "verdict"]
    assert bench.status()["verdict"]["suspects"] == []


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


def test_a_job_that_never_becomes_calm_is_profiled_within_four_minutes(bench):
    bench.healthy_s = 0.0
    assert bench.run(200) == []
    bench.judge.verdicts = [SLOW]
    assert bench.run(70) == ["profile", "verdict"]
    assert bench.master._profiler._healthy is None


def test_a_fail_slow_is_explained_within_a_minute(bench):
    bench.run(60)
    bench.judge.verdicts = [SLOW]
    bench.slow()
    assert bench.run(20) == ["profile", "suspect", "profile", "verdict"]
    (event,) = bench.events("verdict")
    assert event["episode"] == "e1"
    assert event["data"]["suspects"][0]["reasons"] == ["own time 1.9 x", "clocks: power cap"]
    text = "fail-slow e1 is n1 GPU 0000:0b:00.0 (rank 2): 1.90x, explains 97 %"
    assert event_line(event) == text
    now, reference, lost_s = bench.judge.asked[-1]
    assert len(now) == len(reference) == 4 and lost_s == pytest.approx(0.9)
    assert bench.run(100)[4:] == []
    bench.recover()
    assert bench.run(30)[4:] == ["recovered"]
    assert bench.status()["verdict"]["text"] == text
    assert "n1 0000:0b:00.0" in bench.master._gathered.summary.text()


def test_one_that_stays_unexplained_is_tried_again_and_then_said(bench):
    bench.run(60)
    bench.judge.verdicts = [Verdict(abstained="nobody is slower")]
    bench.slow()
    begun_s = bench.mono_s
    while "verdict" not in bench.run(1):
        assert bench.mono_s - begun_s < 60
    assert bench.kinds()[1:] == ["suspect", "profile", "profile", "verdict"]
    (event,) = bench.events("verdict")
    assert event_line(event) == "fail-slow e1: can't tell: nobody is slower"
    assert event["component"] is None
    assert [order.seconds for order, _ in bench.orders[1:]] == [window_s(1.9), 2 * window_s(1.9)]
    assert bench.run(300)[5:] == []


def test_a_slow_answer_is_still_a_verdict_within_a_minute(bench):
    bench.run(60)
    bench.answering = {0}
    bench.judge.verdicts = [Verdict(abstained="nobody is slower")]
    bench.seconds = 30.0
    bench.slow()
    bench.seconds = 30.0
    begun_s = bench.mono_s
    while "verdict" not in bench.run(1):
        assert bench.mono_s - begun_s < 60
    (event,) = bench.events("verdict")
    assert event["data"]["abstained"] == "n1 is unmonitored; nobody is slower"


def test_a_job_with_an_unmonitored_node_cannot_tell(tmp_path, monkeypatch):
    bench = ProfilerBench(tmp_path, monkeypatch, nodes=3)
    bench.run(60)
    bench.slow()
    bench.run(60)
    (event,) = bench.events("verdict")
    assert event_line(event) == "fail-slow e1: can't tell: node 2 is unmonitored"
    bench.recover()
    bench.run(20)
    bench.judge.verdicts = [SLOW]
    bench.slow()
    bench.run(60)
    assert bench.events("verdict")[1]["data"]["notes"] == ["node 2 is unmonitored"]


def test_no_answer_at_all_is_said(bench):
    bench.answering = set()
    bench.run(60)
    bench.slow()
    bench.run(60)
    event = bench.events("profile")[-1]
    assert event["data"]["problems"] == ["n0: no answer", "n1: no answer"]
    assert "unmonitored" in bench.events("verdict")[-1]["data"]["abstained"]
    assert bench.judge.asked == []


def test_the_reference_is_of_a_calm_job_of_the_same_ranks(bench):
    bench.run(20)
    assert bench.kinds() == ["profile"]
    bench.slow()  # reported within half a minute: it may have begun before
    bench.run(60)
    assert bench.judge.asked[-1][1] is None
    bench.recover()
    bench.run(700)
    assert bench.master._profiler._healthy is not None
    bench.alive = 3
    bench.slow()
    bench.run(60)
    assert bench.judge.asked[-1][1] is None


def test_other_work_gets_another_reference(bench):
    bench.run(100)
    assert bench.kinds() == ["profile"]
    bench.work = "other"
    bench.run(100)
    assert bench.kinds() == ["profile", "profile"]
    assert bench.judge.asked[-1][1] is None


def test_late_and_foreign_answers_are_passed_over(bench):
    bench.run(4)
    run = bench.orders[-1][0].run
    bench.send(0, in_messages("another", [profile(0)], "")[0])
    bench.send(7, in_messages(run, [profile(9)], "")[0])
    bench.run(30)
    assert bench.events("profile")[0]["data"]["ranks"] == 4
    bench.answer(0, run)
    assert bench.run(10) == ["profile"]


def test_rubbish_from_one_node_leaves_the_others(bench):
    bench.answering = {0}
    bench.run(4)
    text = encode(Message(1, 1, 0, in_messages(bench.orders[-1][0].run, [profile(2)], "")[0]))
    bench.bus.publish("up", text.replace("0.5", "NaN"))
    bench.run(30)
    (event,) = bench.events("profile")
    assert (event["data"]["ranks"], event["data"]["problems"]) == (2, ["n1: no answer"])


def test_wall_clock_jumps_change_nothing(bench):
    bench.run(2)
    bench.wall_s += 360
    assert bench.run(30) == ["profile"]
    bench.wall_s -= 720
    bench.run(60)
    bench.judge.verdicts = [SLOW]
    bench.slow()
    assert bench.run(30)[-1] == "verdict"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_judge_that_fails_costs_a_verdict_and_nothing_else(bench):
    bench.judge.verdicts = [ArithmeticError("a bug")]
    bench.run(60)
    bench.slow()
    bench.run(60)
    assert "can't be compared" in bench.events("verdict")[-1]["data"]["abstained"]


def test_a_muted_job_is_not_profiled(bench):
    for _ in range(100):
        for node in range(2):
            bench.send(node, IterationBatch("waiting", [], [], "muted by the site (file)"))
        bench.mono_s, bench.wall_s = bench.mono_s + 1, bench.wall_s + 1
        bench.master.round(bench.bus, 0.0)
    assert bench.ears.read("down") == [] and bench.kinds() == []


def test_the_owner_asks_and_is_told(bench):
    bench.run(30)
    request = submit(bench.record, "profile", {})
    bench.judge.verdicts = [Verdict(abstained="no rank is slower")]
    bench.run(20)
    (answer,) = bench.events("setting")
    assert answer["data"]["applied"] and answer["data"]["text"] == "profiling the ranks for 5 s"
    (event,) = bench.events("verdict")
    assert (event["data"]["run"], event["data"]["reason"]) == (request, "owner")
    assert event_line(event) == "nothing is slow that can be named: no rank is slower"


def test_a_comparison_is_not_disturbed(bench):
    bench.run(30)
    submit(bench.record, "ab", {"minutes": 5.0})
    bench.run(3)
    bench.slow()
    bench.run(20)
    assert len(bench.orders) == 1
    submit(bench.record, "ab_stop", {})
    bench.run(30)
    assert len(bench.orders) >= 2
    submit(bench.record, "profile", {})
    bench.run(1)


def test_an_ended_job_refuses_and_a_cut_off_one_answers(bench):
    bench.run(30)
    submit(bench.record, "profile", {})
    bench.run(3)
    for node in range(2):
        bench.send(node, Bye("the step ended"))
    bench.master.finish("the step ended")
    (event,) = bench.events("verdict")
    assert "the job ended" in event["data"]["abstained"]
    assert bench.events("end")


def test_another_redis_hears_of_the_order_again(bench):
    bench.run(4)
    assert len(bench.orders) == 1
    bench.bus = MemoryBus()
    bench.ears = MemoryBus(bench.bus)
    for node in range(2):
        bench.send(node, Hello(f"n{node}", "host", 1))
    bench.run(2)
    assert [order.run for order, _ in bench.orders] == [bench.orders[0][0].run] * 2


def test_windows_samples_and_sizes_fit_the_job():
    assert [window_s(t) for t in (0.0, 0.1, 1.0, 3.0, 5.0, 10.0, 60.0)] == [3.0, 3.0, 5.0, 15.0, 20.0, 32.0, 45.0]
    assert [one_in(rate) for rate in (0.0, 1300.0, 1301.0, 6500.0, 1e30)] == [1, 1, 2, 5, 0xFFFF]
    assert [calls_sent(ranks) for ranks in (0, 1, 256, 512, 1024, 8192)] == [256, 256, 256, 128, 64, 32]


def test_a_busy_job_is_sampled(bench):
    bench.calls = 13_000
    bench.run(10)
    assert bench.orders[0][0].one_in == 10
