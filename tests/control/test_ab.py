"""`greyhound ab` without a job: plan, windows, measures and what they say."""

import random
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from greyhound.control.ab_meter import Mark, WindowMeter, between
from greyhound.control.ab_node import MOST_WINDOW_S, AbNode
from greyhound.control.ab_result import compare, undiluted, verdict
from greyhound.control.ab_run import ANSWER_S, LEAST_PAIRS, AbError, AbRun, plan
from greyhound.control.messages import AbMeasure, AbWindow, Report
from greyhound.trace import layout
from tests.control.ring_program import CALLS, RingWriter
from tests.control.test_analyzer import Bench, of_kind

S = 1_000_000_000
ITERATION_S = 0.5


# -- plan -----------------------------------------------------------------------------------------------


@given(st.floats(0.1, 60), st.floats(0.001, 60), st.integers())
def test_plan_is_balanced_in_every_block_or_says_what_would_do(minutes, iteration_s, seed):
    try:
        made = plan(minutes, iteration_s, random.Random(seed))
    except AbError as error:
        needed = float(str(error).split("--minutes ")[1].split()[0])
        assert needed > minutes
        plan(needed, iteration_s, random.Random(seed))
        return
    assert len(made.muted) >= 2 * LEAST_PAIRS
    assert made.window_s >= 8 * iteration_s or made.window_s >= 4
    assert len(made.muted) * (made.window_s + made.gap_s) <= minutes * 60 + 1e-6
    for first in range(0, len(made.muted), 2):
        assert made.muted[first] != made.muted[first + 1]
    for first in range(0, len(made.muted) - 3, 4):
        assert made.muted[first] == made.muted[first + 3]


# -- one rank's window ------------------------------------------------------------------------------------


@given(
    st.integers(1, 400), st.integers(5, 300), st.integers(0, 20), st.integers(0, 20), st.floats(0.001, 30), st.data()
)
def test_muted_window_is_timed_exactly_from_records_and_counter(period, whole, before, after, seconds, draw):
    """Ends of iterations at multiples of `seconds`; the calls of `whole` iterations between two marks, some muted."""
    recorded = min(before + after, whole * period)
    begin_ns = 5 * S
    first = Mark(begin_ns - 1, 1000)
    meter = WindowMeter(True, begin_ns, begin_ns + 1, first, 77)
    last = Mark(first.t_ns + int(whole * seconds * 1e9), 1000 + recorded)
    meter.see(last)
    if last.t_ns <= begin_ns + 1:
        return
    meter.see(Mark(last.t_ns + S, last.calls + period))  # later ends change nothing
    measured = meter.result(77 + whole * period - recorded, period)
    assert measured.iterations == whole
    assert measured.iteration_s == pytest.approx(seconds, rel=1e-6, abs=1e-9)
    assert measured.share == pytest.approx(1 - recorded / (whole * period))


@pytest.mark.parametrize(("calls", "why"), [(6 * 10 + 3, "other work"), (6 * 4, "only 4 iterations")])
def test_window_with_other_work_or_few_iterations_says_nothing(calls, why):
    measured = between(Mark(0, 0), Mark(10 * S, 0), calls, 6)
    assert why in measured.why_not and measured.iteration_s == 0


def test_recording_window_counts_what_ends_in_it():
    meter = WindowMeter(False, 10 * S, 20 * S, Mark(9 * S, 0), 0)
    for second in range(10, 25):
        meter.see(Mark(second * S, 6 * (second - 9)))
    measured = meter.result(0, 6)
    assert (measured.iterations, measured.iteration_s, measured.share) == (10, 1.0, 0.0)
    assert not WindowMeter(True, 0, 5, None, 0).is_complete(100)


def test_rank_that_has_no_period_is_left_out():
    assert WindowMeter(True, 0, 5, None, 0).result(0, None).why_not


# -- a node ---------------------------------------------------------------------------------------------------


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    made.t_ns = time.monotonic_ns() - 1000 * S
    yield made
    made.analyzer.finish("end of the test")


def window(number=0, muted=True, seconds=20.0, start_in_s=0.0):
    return AbWindow("run", number, muted, time.time_ns() + int(start_in_s * S), seconds)


def test_node_whose_master_died_records_again_by_itself(tmp_path):
    node = AbNode()
    node.take(window(seconds=1e9), 100.0)
    node.step(100.0, [])
    assert node.is_muted(100.0 + MOST_WINDOW_S - 1)
    assert not node.is_muted(100.0 + MOST_WINDOW_S + 1)


def test_node_takes_no_window_that_is_over_or_known_and_forgets_all_on_stop():
    node = AbNode()
    node.take(window(start_in_s=-30), 100.0)
    assert node.step(100.0, []) == []
    assert not node.is_muted(100.0)
    for _ in range(2):
        node.take(window(), 100.0)
    assert [m.why_not for s in (100.0, 121.0) for m in node.step(s, [])] == ["no rank here"]
    watch = FakeWatch()
    node.take(window(1), 130.0)
    node.step(130.0, [watch])
    assert node.is_muted(130.0) and len(watch.meters) == 1
    node.stop()
    assert not node.is_muted(130.0) and not watch.meters


class FakeWatch:
    def __init__(self):
        self.meters = []

    def begin_window(self, muted, begin_ns, end_ns):
        self.meters.append(WindowMeter(muted, begin_ns, end_ns, None, 0))
        return self.meters[-1]

    def end_window(self, meter):
        self.meters.remove(meter)
        return meter.result(0, None)


# -- the master ---------------------------------------------------------------------------------------------------


class Comparison:
    """A run of two nodes whose windows are answered at once."""

    def __init__(self, minutes=2.0):
        self.events = []
        self.run = AbRun("run", plan(minutes, ITERATION_S, random.Random(1)), {0, 1}, self.events.append)
        self.run.start(1000.0)
        self.now_s = 1000.0
        self.sent = []

    def go(self, seconds, disturbed=lambda now_s: "", nodes=(0, 1)):
        for _ in range(int(seconds)):
            self.now_s += 1.0
            for order in self.run.step(self.now_s, disturbed(self.now_s)):
                self.sent.append(order)
                cost = 1.0 if order.muted else 1.01
                for node in nodes:
                    share = 0.9 if order.muted else 0.0
                    self.run.take(node, AbMeasure("run", order.window, 2, 12, ITERATION_S * cost, share, ""))

    @property
    def windows(self):
        return [event for event in self.events if event["phase"] == "window"]


def test_whole_run():
    comparison = Comparison()
    comparison.go(200)
    assert comparison.run.over
    assert [event["phase"] for event in comparison.events][:: len(comparison.events) - 1] == ["start", "end"]
    assert all(order.start_ns / 1e9 - 1000.0 >= 2.4 for order in comparison.sent)
    starts = [order.start_ns / 1e9 for order in comparison.sent]
    assert np.diff(starts).min() >= comparison.sent[0].seconds + 1.0 - 1e-6
    assert [w["dropped"] for w in comparison.windows] == [None] * len(comparison.sent)
    result = compare(comparison.windows)
    assert result.cost.is_clear and result.cost.mean == pytest.approx(0.01 / 0.9 / (1 - 0.001 / 0.9), rel=0.02)
    assert "changes the iteration time by +1.1" in verdict(result)


def test_windows_in_which_something_happened_are_left_out_with_their_pairs():
    comparison = Comparison()
    comparison.go(200, lambda now_s: "fail-slow e1 is open" if 1020 < now_s < 1023 else "")
    result = compare(comparison.windows)
    assert 1 <= result.dropped <= 2
    assert result.why_dropped == ("fail-slow e1 is open",)
    assert "left out: fail-slow e1 is open" in verdict(result)


def test_node_that_does_not_answer_holds_nothing_up_for_good():
    comparison = Comparison()
    comparison.go(130 + ANSWER_S + 60, nodes=(0,))
    assert comparison.run.over
    result = compare(comparison.windows)
    assert result.cost is None
    assert "too few to say anything" in verdict(result) and "no word of 1 nodes" in verdict(result)


def test_stopped_run_is_over_once():
    comparison = Comparison()
    comparison.go(30)
    assert comparison.run.stop("its owner stopped it").run == "run"
    comparison.run.stop("again")
    assert [event["reason"] for event in comparison.events if event["phase"] == "end"] == ["its owner stopped it"]


# -- what it says -------------------------------------------------------------------------------------------------


def pair(number, muted_s, recording_s, share=1.0):
    return [
        {"window": number, "muted": True, "iteration_s": muted_s, "share": share, "dropped": None},
        {"window": number + 1, "muted": False, "iteration_s": recording_s, "share": 0.0, "dropped": None},
    ]


@given(st.floats(0.5, 1.0), st.floats(0.01, 100), st.floats(-0.2, 0.2))
def test_dilution_is_undone(share, muted_s, cost):
    recording_s = muted_s * (1 + cost)
    diluted_s = share * muted_s + (1 - share) * recording_s
    assert undiluted(diluted_s, share, recording_s) == pytest.approx(muted_s)


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.floats(-0.05, 0.05), st.floats(-0.002, 0.002))
def test_cost_is_found_through_noise_and_drift(seed, cost, drift):
    rng = np.random.default_rng(seed)
    windows = []
    for number in range(0, 60, 2):
        level = 1.0 * (1 + drift * number)
        a, b = level * (1 + rng.normal(0, 0.001, 2))
        windows += pair(number, a, b * (1 + cost))
    found = compare(windows).cost
    assert found.mean == pytest.approx(cost, abs=0.003)
    assert found.low <= found.mean <= found.high
    assert found.high - found.low < 0.01


def test_interval_that_contains_zero_is_said():
    windows = [w for n, d in enumerate([0.02, -0.02, 0.01, -0.01]) for w in pair(2 * n, 1.0, 1.0 + d)]
    assert "The interval contains zero" in verdict(compare(windows))
    assert "too few to say anything" in verdict(compare(windows[:4]))
    assert "too few to say anything" in verdict(compare([]))


def test_window_that_was_hardly_muted_is_left_out():
    assert compare(pair(0, 1.0, 1.0, share=0.3)).why_dropped == ("most of a muted window wasn't muted",)


# -- through the analyzer, its ring and the bus --------------------------------------------------------------------


def test_window_from_message_to_measure(bench, tmp_path):
    writer = RingWriter(tmp_path, 0)
    bench.t_ns = time.monotonic_ns() - 60 * S
    bench.train(writer, 60, 1.0)
    messages = bench.poll(2)
    bench.tell(window(seconds=1.5))
    bench.poll(2)  # the window begins
    assert writer.mode == layout.GH_MODE_MUTED
    writer.add_muted(9 * CALLS)
    bench.t_ns += 9 * S
    time.sleep(0.6)
    bench.poll()
    assert writer.mode == layout.GH_MODE_OBSERVE
    bench.train(writer, 4, 1.0)
    messages = bench.poll()
    (measure,) = of_kind(messages, AbMeasure)
    assert (measure.window, measure.ranks, measure.iterations, measure.why_not) == (0, 1, 11, "")
    assert measure.iteration_s == pytest.approx(1.0, rel=1e-6)
    assert measure.share == pytest.approx(9 / 11)
    assert not of_kind(messages, Report)
