"""The iteration clock against streams whose iterations are known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from greyhound.detect.period import IterationClock
from tests.detect.streams import Megatron, encode, fsdp_iteration, shuffle_neighbours, timed

MODELS = [
    Megatron(tp=2, dp=2, pp=2, stage=0),
    Megatron(tp=2, dp=2, pp=2, stage=1),
    Megatron(tp=2, dp=1, pp=2, stage=0),
    Megatron(tp=2, dp=1, pp=2, stage=1, micro_batches=8),
    Megatron(tp=1, dp=4, pp=1),
    Megatron(tp=4, dp=1, pp=1),
    Megatron(tp=4, dp=1, pp=1, micro_batches=8),
    Megatron(tp=1, dp=4, pp=1, distributed_optimizer=True, buckets=5),
    Megatron(tp=8, dp=2, pp=4, stage=1, layers=24, micro_batches=16),
    Megatron(tp=8, dp=16, pp=1, layers=96, micro_batches=12),
]


def push_in_steps(stream, step=100, clock=None):
    clock = clock or IterationClock()
    iterations = []
    for at in range(0, len(stream.symbols), step):
        iterations += clock.push(stream.symbols[at : at + step], stream.t_ns[at : at + step])
    return clock, iterations


def final_numbering(iterations):
    """Without what was returned before the last restart of the numbers."""
    restarts = [i for i in range(1, len(iterations)) if iterations[i].index <= iterations[i - 1].index]
    return iterations[restarts[-1] if restarts else 0 :]


def times(count, seed=0, jitter=0.03):
    return np.exp(np.random.default_rng(seed).normal(0, jitter, count))


@pytest.mark.parametrize("model", MODELS, ids=str)
@pytest.mark.parametrize("step", [37, 100_000])
def test_megatron_periods_are_exact(model, step):
    truth_s = times(30)
    stream = timed(model.start(), [model.iteration()] * 30, truth_s)
    clock, iterations = push_in_steps(stream, step)
    assert clock.locked
    assert clock.period == len(model.iteration())
    found = final_numbering(iterations)
    assert [row.index for row in found] == list(range(1, 30))
    seconds = np.array([row.seconds for row in found])
    assert np.abs(np.median(seconds) / np.median(truth_s[1:]) - 1) < 0.01
    assert (np.diff([row.end_ns for row in found]) > 0).all()


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_locks_within_five_iterations(model):
    stream = timed(model.start(), [model.iteration()] * 5, times(5))
    clock, _ = push_in_steps(stream, 10)
    assert clock.period == len(model.iteration())


def test_slow_iterations_show_at_their_number():
    truth_s = np.ones(60)
    truth_s[30:40] = 2.0
    model = MODELS[0]
    _, iterations = push_in_steps(timed(model.start(), [model.iteration()] * 60, truth_s))
    slow = [row.index for row in final_numbering(iterations) if row.seconds > 1.5]
    assert slow == list(range(30, 40))


def test_fully_sharded():
    body = fsdp_iteration(24)
    stream = timed([], [body] * 40, times(40))
    clock, _ = push_in_steps(stream)
    assert clock.period == len(body)


@pytest.mark.parametrize("period", [1, 2, 3, 5, 17, 1000])
def test_plain_periods(period):
    body = [(1, 1, size, -1) for size in range(period)]
    stream = timed([], [body] * 60, times(60))
    clock, iterations = push_in_steps(stream)
    assert (clock.period, clock.locked) == (period, True)
    assert len(final_numbering(iterations)) == 59


def test_period_whose_symbols_all_occur_twice():
    body = [(1, 1, size, -1) for size in (1, 1, 2, 3, 3, 2)]
    clock, _ = push_in_steps(timed([], [body] * 100, times(100)))
    assert clock.period == 6


def test_reordered_calls():
    model = MODELS[8]
    truth_s = times(40)
    stream = shuffle_neighbours(timed(model.start(), [model.iteration()] * 40, truth_s), share=0.05)
    clock, iterations = push_in_steps(stream)
    assert abs(clock.period - len(model.iteration())) <= 1
    seconds = [row.seconds for row in final_numbering(iterations)]
    assert len(seconds) >= 35
    assert np.median(seconds) == pytest.approx(np.median(truth_s), rel=0.01)


@pytest.mark.parametrize("every", [5, 10, 30])
def test_logging_call_every_few_iterations_is_no_longer_period(every):
    model = MODELS[0]
    bodies = [model.iteration() + [(4, 11, 64, -1)] * (i % every == every - 1) for i in range(200)]
    clock, iterations = push_in_steps(timed(model.start(), bodies, times(200)))
    assert clock.period == len(model.iteration())
    assert [row.index for row in final_numbering(iterations)] == list(range(1, 200))


@pytest.mark.parametrize("model", [MODELS[0], MODELS[5], MODELS[9]], ids=str)
def test_evaluation_in_between(model):
    bodies = [model.iteration() + (model.evaluation(20) if i % 25 == 14 else []) for i in range(100)]
    stream = timed(model.start(), bodies, np.where(np.arange(100) % 25 == 14, 5.0, 1.0))
    clock, iterations = push_in_steps(stream)
    assert clock.locked
    assert clock.period == len(model.iteration())
    found = final_numbering(iterations)
    assert len(found) >= 100 - 4 * 3
    assert abs(found[-1].index - 99) <= 4
    assert np.median([row.seconds for row in found]) == pytest.approx(1.0, rel=0.01)


def test_relocks_after_a_change_of_the_work():
    before, after = MODELS[0], Megatron(tp=2, dp=2, pp=2, micro_batches=10)
    bodies = [before.iteration()] * 30 + [after.iteration()] * 30
    clock, iterations = push_in_steps(timed(before.start(), bodies, times(60)))
    assert clock.locked
    assert clock.period == len(after.iteration())
    assert clock.pattern > 0
    assert iterations[-1].pattern == clock.pattern
    assert abs(iterations[-1].index - 59) <= 3


def test_same_number_of_other_calls_is_another_pattern():
    model = MODELS[4]
    other = [(op, comm, size * 2, peer) for op, comm, size, peer in model.iteration()[:-1]] + model.iteration()[-1:]
    clock, iterations = push_in_steps(timed([], [model.iteration()] * 20 + [other] * 20, times(40)))
    assert clock.locked
    assert iterations[0].pattern < iterations[-1].pattern


def test_gap_is_not_timed_as_an_iteration():
    model = MODELS[0]
    stream = timed(model.start(), [model.iteration()] * 40, np.ones(40))
    cut = len(stream.symbols) // 2
    lost = 3 * len(model.iteration()) + 7
    clock = IterationClock()
    iterations = clock.push(stream.symbols[:cut], stream.t_ns[:cut])
    clock.gap()
    iterations += clock.push(stream.symbols[cut + lost :], stream.t_ns[cut + lost :])
    assert max(row.seconds for row in iterations) < 1.2
    assert iterations[-1].index == 39


def test_memory_stays_bounded():
    model = MODELS[0]
    clock = IterationClock()
    body = encode(model.iteration() * 100)
    for block in range(40):
        clock.push(body, np.arange(len(body), dtype=np.int64) * 1000 + block * 10**9)
    assert clock.locked
    assert sum(len(chunk[0]) for chunk in clock._chunks) < 2**18


def test_noise_never_locks():
    symbols = np.random.default_rng(0).integers(0, 2**63, size=200, dtype=np.uint64)
    noise = symbols[np.random.default_rng(1).integers(0, 200, size=20_000)]
    clock = IterationClock()
    assert clock.push(noise, np.arange(20_000, dtype=np.int64)) == []
    assert clock.period is None


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(1, 10**6), which=st.integers(0, len(MODELS) - 3), step=st.integers(5, 3000))
def test_renaming_the_calls_changes_nothing(seed, which, step):
    model = MODELS[which]
    stream = timed(model.start(), [model.iteration()] * 12, times(12))
    renamed = timed(model.start(), [model.iteration()] * 12, times(12))
    names = np.unique(stream.symbols)
    other = np.random.default_rng(seed).permutation(names)
    renamed.symbols = other[np.searchsorted(names, stream.symbols)]
    assert push_in_steps(stream, step)[1] == push_in_steps(renamed, step)[1]


@settings(max_examples=25, deadline=None)
@given(
    tp=st.sampled_from([1, 2, 8]),
    dp=st.sampled_from([1, 2, 4]),
    pp=st.sampled_from([1, 2, 4]),
    layers=st.integers(1, 12),
    micro_batches=st.integers(1, 24),
    distributed_optimizer=st.booleans(),
    data=st.data(),
)
def test_any_megatron_layout(tp, dp, pp, layers, micro_batches, distributed_optimizer, data):
    stage = data.draw(st.integers(0, pp - 1))
    model = Megatron(tp, dp, pp, stage, layers, micro_batches, 3, distributed_optimizer)
    stream = timed(model.start(), [model.iteration()] * 60, times(60))
    clock, _ = push_in_steps(stream, 500)
    assert clock.period == len(model.iteration())
