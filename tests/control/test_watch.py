"""Whether a rank lives: by its process and, where that can't be seen from here, by its ring; and plans' doing."""

import pytest

from greyhound.control import watch
from greyhound.control.messages import IterationBatch
from greyhound.detect.period import Iteration
from tests.control.ring_program import RingWriter
from tests.control.test_analyzer import Bench, of_kind


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    yield made
    made.analyzer.finish("end of the test")


@pytest.fixture
def clock(monkeypatch):
    """The watch's monotonic clock, in the test's hands."""
    now = [1000.0]
    monkeypatch.setattr(watch.time, "monotonic", lambda: now[0])
    return now


def test_rank_of_another_pid_namespace_lives_while_its_ring_moves(bench, tmp_path, clock, monkeypatch):
    monkeypatch.setattr(watch, "process_alive", lambda pid, pid_start: False)
    writer = RingWriter(tmp_path, 0)
    for _ in range(100):
        writer.call(1024)
        clock[0] += 100.0
        assert of_kind(bench.poll(), IterationBatch)[-1].ranks[0].alive
    clock[0] += watch.STILL_S - 1  # a long checkpoint
    assert of_kind(bench.poll(100), IterationBatch)[-1].ranks[0].alive
    clock[0] += watch.STILL_S
    assert not of_kind(bench.poll(), IterationBatch)[-1].ranks[0].alive
    writer.call(1024)
    assert of_kind(bench.poll(), IterationBatch)[-1].ranks[0].alive
    assert writer.path.exists()
    clock[0] += 2 * watch.STILL_S
    bench.poll(70)
    assert not writer.path.exists()


def test_killed_rank_that_was_seen_is_dead_at_once(bench, tmp_path, monkeypatch):
    RingWriter(tmp_path, 0)
    assert of_kind(bench.poll(), IterationBatch)[-1].ranks[0].alive
    monkeypatch.setattr(watch, "process_alive", lambda pid, pid_start: False)
    assert not of_kind(bench.poll(), IterationBatch)[-1].ranks[0].alive


@pytest.mark.parametrize(("iteration_s", "follows"), [(1.0, False), (40.0, True)])
def test_other_calls_are_a_plans_doing_for_some_iterations(bench, tmp_path, iteration_s, follows):
    RingWriter(tmp_path, 3)
    bench.poll()
    (rank,) = bench.analyzer._watches.values()
    rank.tell_plan(b"{}")
    rank._planned_s -= 100.0
    rank._last = (5, iteration_s, 0)
    assert rank._follows_plan(Iteration(6, 0, iteration_s, 1)) is follows
