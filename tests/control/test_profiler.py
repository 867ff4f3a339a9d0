"""When the master profiles, what it compares, what it says: a job of two nodes over a bus in memory, clocks by hand."""

import pytest

from greyhound.control.bus import MemoryBus
from greyhound.control.lines import event_line
from greyhound.control.messages import Bye, Hello, IterationBatch, Message, encode
from greyhound.control.profile_message import in_messages
from greyhound.control.profile_run import calls_sent, one_in, window_s
from greyhound.control.requests import submit
from greyhound.localize.model import Verdict
from tests.control.profiler_bench import SLOW, ProfilerBench, profile


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
