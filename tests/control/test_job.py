"""The master's picture of a job, driven by messages and a clock of the test's own."""

import json
import math

from hypothesis import given, settings
from hypothesis import strategies as st

from greyhound.control import lines
from greyhound.control.job import PARTIAL_LOCK_S, SILENT_S, Job
from greyhound.control.messages import Bye, Hello, IterationBatch, Message, RankSample, Report
from greyhound.control.names import StepName
from greyhound.control.states import State

S = 1_000_000_000


TOO_LONG = {"kind": "recovered", "episode": "e1", "iteration": 1, "data": {"duration_s": math.inf, "lost_s": math.inf}}


class Bench:
    def __init__(self, tasks=4, nodes=2):
        self.events = []
        self.notices = []
        self.job = Job(StepName("7", "0", 0), "on", tasks, nodes, self.emit, self.notices.append)
        self.job.start(1000.0, {"mode": "on", "nodes": nodes})
        self.now_s = 1000.0

    def emit(self, kind, t_s, data=None, episode=None, iteration=None):
        self.events.append(
            {"kind": kind, "data": data or {}, "episode": episode, "iteration": iteration, "job": "7", "step": "0"}
        )

    def send(self, node, data):
        self.job.handle(Message(node, 1, 0, data), self.now_s)

    def batch(self, node, iteration, seconds=1.0, locked=(True, True), alive=True, muted=""):
        samples = [
            RankSample(f"ring{i}", 2 * node + i, lock, alive, iteration, seconds, 1.0, 0)
            for i, lock in enumerate(locked)
        ]
        self.send(node, IterationBatch("tracking" if any(locked) else "waiting", samples, muted=muted))

    def tick(self, seconds=1.0):
        self.now_s += seconds
        self.job.tick(self.now_s)
        return self.job.status(self.now_s)

    def report(self, node, key, what, onset, at, lost_s=0.0):
        self.send(node, Report(key, 0, what, onset, (1000 + onset) * S, at, (1000 + at) * S, 1.0, 1.5, 1.5, lost_s))

    @property
    def kinds(self):
        return [event["kind"] for event in self.events]


def test_a_count_that_begins_again_forgets_the_healthy_time():
    bench = Bench(nodes=1)
    bench.send(0, Hello("n1", "host", 1))
    micro_batches = [RankSample("ring0", 0, True, True, 12, 0.08, 0.08, 0)]
    bench.send(0, IterationBatch("tracking", micro_batches))
    assert bench.tick()["healthy_s"] == 0.08
    bench.send(0, IterationBatch("tracking", [RankSample("ring0", 0, True, True, 14, 0.6, 0.0, 0)]))
    assert bench.tick()["healthy_s"] == 0.08
    bench.send(0, IterationBatch("tracking", [RankSample("ring0", 0, True, True, 3, 0.6, 0.0, 0)]))
    assert bench.tick()["healthy_s"] == 0.0


def test_from_waiting_to_the_end_with_one_episode():
    bench = Bench()
    assert bench.tick()["reason"] == "no communicator made yet"
    for node in (0, 1):
        bench.send(node, Hello(f"n{node + 1}", "host", 1))
        bench.batch(node, 0, locked=(False, False))
    assert bench.tick()["reason"] == "no period found yet in the calls of 4 ranks"
    for node in (0, 1):
        bench.batch(node, 30 + 2 * node, 1.0)
    status = bench.tick()
    assert (status["state"], status["iteration"], status["tracked"], status["healthy_s"]) == ("tracking", 31, 4, 1.0)
    for node in (0, 1):
        bench.batch(node, 44, 1.5)
        bench.report(node, "ring0", "opened", 40, 44)
    status = bench.tick()
    assert status["state"] == "suspect"
    assert [(e["id"], e["open"], e["onset"]) for e in status["episodes"]] == [("e1", True, 40)]
    for node in (0, 1):
        bench.batch(node, 64, 1.0)
        bench.report(node, "ring0", "closed", 40, 60, 10.0)
    status = bench.tick()
    assert (status["state"], status["lost_s"]) == ("tracking", 10.0)
    for node in (0, 1):
        bench.batch(node, 70, 1.0, alive=False)
        bench.send(node, Bye("the step ended"))
    bench.tick()
    bench.job.finish(bench.now_s, "the step ended")
    bench.job.finish(bench.now_s, "again")
    assert [kind for kind in bench.kinds if kind != "waiting"] == ["start", "tracking", "suspect", "recovered", "end"]
    end = bench.events[-1]["data"]
    assert (end["ranks"], end["tracked"], end["lost_s"], len(end["episodes"])) == (4, 4, 10.0, 1)
    texts = [lines.event_line(event) for event in bench.events if event["kind"] in ("suspect", "recovered", "end")]
    assert "e1" in texts[0] and "1.50x" in texts[0]
    assert "10 s lost" in texts[1]
    assert "1 fail-slow," in texts[2]


def test_open_episode_at_the_end_is_not_called_recovered():
    bench = Bench(tasks=2, nodes=1)
    bench.batch(0, 44, 1.5)
    bench.tick()
    bench.report(0, "ring0", "opened", 40, 44)
    bench.tick()
    bench.batch(0, 60, 1.5)
    bench.tick()
    bench.job.finish(bench.now_s, "the step ended")
    assert "recovered" not in bench.kinds
    (episode,) = bench.events[-1]["data"]["episodes"]
    assert episode["cause"] == "open at the end of the job"
    assert episode["lost_s"] == 10.0


def test_not_intercepted_is_said_only_without_rings():
    bench = Bench()
    bench.send(0, IterationBatch("not_intercepted"))
    assert bench.tick()["state"] == "not_intercepted"
    bench.batch(0, 5)
    assert bench.tick()["state"] == "tracking"


def test_only_some_ranks_locked_is_said_after_a_while():
    bench = Bench(nodes=1)
    bench.batch(0, 30, locked=(True, False))
    assert bench.tick()["notices"] == []
    waited_s = 0.0
    while waited_s <= PARTIAL_LOCK_S:
        bench.batch(0, 60, locked=(True, False))
        status = bench.tick(5.0)
        waited_s += 5.0
    assert "1 of 2 show no period" in status["notices"][0]
    assert status["tracked"] == 1


def test_silent_node_is_said_once_and_its_ranks_no_longer_count():
    bench = Bench()
    for node in (0, 1):
        bench.batch(node, 30)
    bench.tick()
    status = silent(bench, 1, 3 * SILENT_S)
    assert status["tracked"] == 2
    assert len(bench.notices) == 1
    assert "silent" in bench.notices[0]


def test_silent_node_is_an_event_and_the_end_says_what_it_missed():
    bench = Bench()
    for node in (0, 1):
        bench.send(node, Hello(f"n{node + 1}", "host", 1))
        bench.batch(node, 30)
    bench.tick()
    for iteration in range(31, 60):
        bench.batch(0, iteration)
        bench.tick()
    (event,) = [event for event in bench.events if event["kind"] == "unmonitored"]
    assert event["data"]["node"] == "n2"
    assert "its ranks run unmonitored" in event["data"]["reason"]


def test_tracking_is_told_once_all_ranks_are_or_after_a_while():
    bench = Bench(nodes=1)
    bench.send(0, Hello("n1", "host", 1))
    bench.batch(0, 5, locked=(True, False))
    bench.tick()
    assert "tracking" not in bench.kinds
    bench.batch(0, 6)
    bench.tick()
    (event,) = [event for event in bench.events if event["kind"] == "tracking"]
    assert event["data"]["ranks"] == 2


def test_end_while_ranks_still_run_says_so():
    bench = Bench(nodes=1)
    bench.send(0, Hello("n1", "host", 1))
    bench.batch(0, 70)
    bench.tick()
    bench.job.finish(bench.now_s, "the step was sent TERM")
    assert "told to stop while 2 ranks still ran" in lines.event_line(bench.events[-1])
    ended = Bench(nodes=1)
    ended.batch(0, 70)
    ended.tick()
    ended.batch(0, 71, alive=False)
    ended.job.finish(ended.now_s, "the step ended")
    assert "still ran" not in lines.event_line(ended.events[-1])


def test_end_of_a_job_that_was_not_watched_to_its_end_says_so():
    bench = Bench(nodes=1)
    bench.send(0, Hello("n1", "host", 1))
    bench.batch(0, 70)
    bench.tick()
    bench.job.unmonitored("redis-server died", bench.now_s)
    bench.job.finish(bench.now_s + 60, "the step ended")
    end = bench.events[-1]
    assert lines.event_line(end) == "ended; unmonitored since iteration 70: redis-server died"


def silent(bench, node, seconds, other=None):
    """Only the other node speaks for a while."""
    for _ in range(round(seconds / 5) + 1):
        bench.send(1 - node, other) if other else bench.batch(1 - node, 50)
        status = bench.tick(5.0)
    return status


def states_of_nodes(status):
    return [node["state"] for node in status["nodes"]]


def test_node_that_is_heard_again_is_not_gone():
    bench = Bench()
    for node in (0, 1):
        bench.batch(node, 30)
    bench.tick()
    status = silent(bench, 1, SILENT_S)
    assert states_of_nodes(status) == ["tracking", "gone"]
    assert len(status["notices"]) == 1
    bench.batch(1, 60)
    status = bench.tick()
    assert (states_of_nodes(status), status["tracked"], status["notices"]) == (["tracking", "tracking"], 4, [])
    assert "heard again" in bench.notices[-1]
    assert len(silent(bench, 1, SILENT_S)["notices"]) == 1
    bench.send(1, Bye("the step ended"))
    assert states_of_nodes(bench.tick()) == ["tracking", "gone"]


def test_silence_while_the_master_itself_was_stopped_or_deaf_does_not_count():
    bench = Bench()
    for node in (0, 1):
        bench.batch(node, 30)
    bench.tick()
    bench.tick(600.0)
    status = bench.tick(0.2)
    assert (status["tracked"], bench.notices) == (4, [])
    bench.job.unmonitored("Redis is out of reach", bench.now_s)
    for _ in range(10):
        bench.tick(5.0)
    bench.job.monitored_again(bench.now_s)
    assert (bench.tick()["tracked"], bench.notices) == (4, [])


def test_last_tracked_node_falls_silent_beside_one_that_is_not_intercepted():
    bench = Bench()
    bench.batch(0, 44, 1.5)
    bench.tick()
    assert silent(bench, 0, SILENT_S, IterationBatch("not_intercepted"))["state"] == "not_intercepted"
    bench.report(0, "ring0", "opened", 40, 44)
    bench.batch(0, 44, 1.5)
    assert bench.tick()["state"] == "suspect"
    assert silent(bench, 0, SILENT_S, IterationBatch("not_intercepted"))["state"] == "not_intercepted"


def test_episode_that_shows_while_unmonitored_is_told_and_the_state_stays():
    bench = Bench(nodes=1)
    bench.batch(0, 44, 1.5)
    bench.tick()
    bench.job.unmonitored("Redis is out of reach", bench.now_s)
    bench.report(0, "ring0", "opened", 40, 44)
    assert bench.tick()["state"] == "unmonitored"
    assert bench.kinds[-1] == "suspect"
    bench.job.monitored_again(bench.now_s)
    assert bench.tick()["state"] == "suspect"


def test_change_of_state_that_is_not_in_the_table_is_refused_softly():
    bench = Bench()
    assert not bench.job._change(State.MITIGATE)
    assert bench.notices == ["state kept: starting can't be followed by mitigate"]


counts = st.integers(0, 100)
small_s = st.floats(0, 10)
sample_of = st.builds(
    RankSample, st.sampled_from("ab"), counts, st.booleans(), st.booleans(), counts, small_s, small_s, counts
)
reports = st.builds(
    Report, st.sampled_from("ab"), counts, st.sampled_from(["opened", "closed", "regime"]), counts, counts, counts,
    counts, small_s, small_s, small_s, small_s,
)  # fmt: skip
samples = st.lists(sample_of, min_size=1, max_size=2)
batches = st.builds(IterationBatch, st.sampled_from(["waiting", "tracking"]), samples) | st.builds(
    IterationBatch, st.sampled_from(["waiting", "not_intercepted"])
)
happenings = st.one_of(
    st.tuples(st.integers(0, 1), st.one_of(batches, batches, reports, st.builds(Bye, st.just("")))),
    st.sampled_from([0.2, 1.0, 5.0, 7.0, 60.0, -5.0]),
    st.sampled_from(["unmonitored", "monitored_again"]),
)


@settings(max_examples=300)
@given(st.lists(happenings, min_size=8, max_size=40))
def test_no_order_of_messages_brings_the_master_down(steps):
    bench = Bench()
    for step in steps:
        if isinstance(step, tuple):
            bench.send(*step)
            bench.tick(0.2)
        elif isinstance(step, float):
            bench.tick(step)
        elif step == "unmonitored":
            bench.job.unmonitored("lost", bench.now_s)
        else:
            bench.job.monitored_again(bench.now_s)
        json.dumps(bench.job.status(bench.now_s), allow_nan=False)
    bench.tick()
    bench.job.finish(bench.now_s, "the step ended")
    bench.tick()
    assert bench.job.status(bench.now_s)["state"] == "ended"
    assert not [notice for notice in bench.notices if "state kept" in notice]
    assert all(
        lines.event_line(event) != event["kind"] for event in bench.events if event["kind"] in ("end", "suspect")
    )


def test_node_that_never_speaks_is_said():
    bench = Bench(nodes=3)
    for _ in range(14):
        for node in (0, 2):
            bench.batch(node, 30)
        status = bench.tick(5.0)
    assert bench.notices == ["no word from 1 of 3 nodes (index 1); they run unmonitored"]
    assert status["tracked"] == 4


def test_unmonitored_stays_until_the_end_with_its_reason():
    bench = Bench()
    bench.job.unmonitored("redis-server died", bench.now_s)
    status = bench.tick()
    assert (status["state"], status["reason"]) == ("unmonitored", "redis-server died")
    bench.job.unmonitored("redis-server died", bench.now_s)
    bench.job.finish(bench.now_s, "the step ended")
    assert bench.kinds == ["start", "unmonitored", "end"]
    assert bench.job.status(bench.now_s)["reason"] == "redis-server died"


def test_run_too_short_to_know_its_healthy_time_says_so():
    bench = Bench(nodes=1)
    bench.send(0, IterationBatch("tracking", [RankSample("ring0", 0, True, True, 12, 0.08, 0.0, 0)]))
    bench.tick()
    bench.send(0, IterationBatch("tracking", [RankSample("ring0", 0, True, False, 12, 0.08, 0.0, 0)]))
    bench.job.finish(bench.now_s, "the step ended")
    text = lines.event_line(bench.events[-1])
    assert text == "ended after 12 iterations, not tracked long enough to know the healthy time"


def test_run_whose_iteration_is_found_in_its_last_batch_was_tracked():
    bench = Bench(nodes=1)
    bench.batch(0, 60, alive=False)
    bench.tick()
    bench.job.finish(bench.now_s, "the step ended")
    data = bench.events[-1]["data"]
    assert (data["iterations"], data["tracked"], data["healthy_s"]) == (60, 2, 1.0)


def test_lines_survive_events_of_another_release():
    for event in (
        {"kind": "suspect", "data": {}},
        {"kind": "dreamt", "data": {}},
        {"kind": "end", "data": None},
        TOO_LONG,
    ):
        assert lines.event_line(event).startswith(event["kind"][:3])
