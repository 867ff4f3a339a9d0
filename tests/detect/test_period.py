"""The iteration clock against streams whose iterations are known."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from greyhound.detect.period import IterationClock
from greyhound.testdata.streams import Disturbances, make_stream
from greyhound.testdata.workloads import DDP, FSDP, Megatron, Plain
from greyhound.trace import layout
from greyhound.trace.records import symbols

NOTHING_UNIQUE = FSDP(layers=24, root=False)
LAYOUTS = [
    Megatron(tp=2, dp=2, pp=2, stage=0),
    Megatron(tp=2, dp=2, pp=2, stage=1),
    Megatron(tp=2, dp=1, pp=2, stage=1, micro_batches=8),
    Megatron(tp=1, dp=4, pp=1),
    Megatron(tp=4, dp=1, pp=1, micro_batches=8),
    Megatron(tp=1, dp=4, pp=1, distributed_optimizer=True, buckets=5),
    Megatron(tp=8, dp=2, pp=4, stage=1, layers=24, micro_batches=16),
    Megatron(tp=8, dp=16, pp=1, layers=96, micro_batches=12),
    Megatron(tp=2, dp=2, pp=4, stage=0, chunks=2, micro_batches=8),
    Megatron(tp=2, dp=2, pp=4, stage=3, chunks=2, micro_batches=8, loss_per_micro_batch=True),
    FSDP(layers=24),
    NOTHING_UNIQUE,
    FSDP(layers=12, replicas=2, clip=True),
    FSDP(layers=16, micro_batches=4, no_sync=True, clip=True),
    DDP(buckets=9),
    DDP(buckets=12, equal=10, logged=True),
]
RAGGED = [
    Megatron(tp=2, dp=2, pp=1, ep=4, layers=3, micro_batches=4),
    Megatron(tp=1, dp=4, pp=2, stage=1, ep=8, layers=2, micro_batches=8, distributed_optimizer=True),
    Megatron(tp=2, dp=2, pp=1, ep=4, layers=3, micro_batches=4, grouped=True),
    Megatron(tp=4, dp=2, pp=1, layers=4, micro_batches=4, variable_length=True),
]


def push(stream, step=500, clock=None, symbols=None):
    """The clock and its iterations after the whole stream, in pieces of `step` calls; and all periods it has told."""
    clock = clock or IterationClock()
    symbols = stream.symbols if symbols is None else symbols
    iterations, periods = [], []
    for at in range(0, len(symbols), step):
        iterations += clock.push(symbols[at : at + step], stream.t_ns[at : at + step])
        periods += [clock.period] if clock.period not in (None, *periods[-1:]) else []
    return clock, iterations, periods


def final_numbering(iterations):
    """Without what was returned before the last restart of the numbers."""
    restarts = [i for i in range(1, len(iterations)) if iterations[i].index <= iterations[i - 1].index]
    return iterations[restarts[-1] if restarts else 0 :]


def assert_true_times(iterations, stream):
    """Each iteration ends where one of the truth does, and its time is within 0.1 % of it."""
    place = {int(end_ns): i for i, end_ns in enumerate(stream.end_ns)}
    for row in iterations:
        assert row.seconds == pytest.approx(stream.seconds[place[row.end_ns]], rel=0.001)


@pytest.mark.parametrize("workload", LAYOUTS, ids=str)
@pytest.mark.parametrize("step", [37, 100_000])
def test_periods_and_times_are_exact(workload, step):
    stream = make_stream(workload, 30)
    clock, iterations, _ = push(stream, step)
    assert (clock.locked, clock.period) == (True, stream.period)
    found = final_numbering(iterations)
    # Where no call is unique, an end shows by the calls after it.
    assert [row.index for row in found] == list(range(1, 29 if workload == NOTHING_UNIQUE else 30))
    assert_true_times(found, stream)


@pytest.mark.parametrize("workload", RAGGED, ids=str)
def test_ragged_sizes(workload):
    stream = make_stream(workload, 40)
    assert len(np.unique(stream.symbols)) > 40 or workload.grouped
    clock, iterations, _ = push(stream)
    assert (clock.locked, clock.period) == (True, stream.period)
    found = final_numbering(iterations)
    assert [row.index for row in found] == list(range(1, 40))
    assert_true_times(found, stream)


@pytest.mark.parametrize("workload", [*LAYOUTS[:10], *RAGGED[:2]], ids=str)
def test_no_micro_batch_is_taken_for_an_iteration(workload):
    stream = make_stream(workload, 24)
    clock, _, periods = push(stream, 10)
    assert clock.period == stream.period
    assert periods == [stream.period]


@pytest.mark.parametrize("period", [1, 2, 3, 5, 17, 1000, 4097])
@pytest.mark.parametrize("kinds", [0, 2, 30])
def test_plain_periods(period, kinds):
    stream = make_stream(Plain(period, min(kinds, period), seed=3), 60)
    true = smallest_period(stream.symbols[:period])
    clock, iterations, _ = push(stream)
    assert (clock.period, clock.locked) == (true, True)
    assert len(final_numbering(iterations)) >= 60 * period // true - 2


def smallest_period(body):
    """Of the body repeated without end."""
    return next(p for p in range(1, len(body) + 1) if len(body) % p == 0 and (body == np.roll(body, p)).all())


@settings(max_examples=6, deadline=None)
@example(period=37_485, seed=0, kinds=3)
@given(period=st.integers(1, 200_000), seed=st.integers(0, 1000), kinds=st.sampled_from([0, 3, 1000]))
def test_any_period(period, seed, kinds):
    body = Plain(period, kinds, seed)
    count = max(4, min(60, 1_000_000 // period))
    stream = make_stream(body, count)
    true = smallest_period(stream.symbols[:period]) if period < 10_000 else period
    clock, _, _ = push(stream, 4096)
    assert clock.period == true


def test_a_million_calls():
    symbols = np.random.default_rng(0).integers(1, 2**63, 1_000_000, dtype=np.uint64)
    clock = IterationClock()
    iterations = []
    for block in range(3):
        t_ns = (np.arange(len(symbols)) + block * len(symbols)) * 1000
        iterations += clock.push(symbols, t_ns)
    assert clock.period == 1_000_000
    assert [row.seconds for row in iterations] == [1.0, 1.0]


def test_one_operation_of_one_size_is_an_iteration_of_one_call():
    stream = make_stream(DDP(buckets=1), 60)
    clock, iterations, _ = push(stream)
    assert clock.period == 1
    assert_true_times(iterations, stream)


@pytest.mark.parametrize("workload", [w for w in LAYOUTS if w != NOTHING_UNIQUE], ids=str)
def test_calls_reordered_between_threads(workload):
    stream = make_stream(workload, 40, disturbances=Disturbances(reordered=0.05))
    clock, iterations, _ = push(stream)
    assert abs(clock.period - stream.period) <= 3
    seconds = [row.seconds for row in final_numbering(iterations)]
    assert len(seconds) >= 34
    assert np.median(seconds) == pytest.approx(np.median(stream.seconds), rel=0.02)


@pytest.mark.parametrize("every", [5, 10, 30])
@pytest.mark.parametrize("workload", [LAYOUTS[0], FSDP(layers=24), DDP(buckets=9)], ids=str)
def test_a_logging_call_makes_no_longer_period(workload, every):
    stream = make_stream(workload, 200, disturbances=Disturbances(log_every=every))
    clock, iterations, _ = push(stream)
    assert clock.period == stream.period
    assert [row.index for row in final_numbering(iterations)] == list(range(1, 200))


@pytest.mark.parametrize("batches", [20, 400])
@pytest.mark.parametrize("workload", [*LAYOUTS, *RAGGED[:2]], ids=str)
def test_evaluations_are_no_iterations(workload, batches):
    stream = make_stream(workload, 110, disturbances=Disturbances(evaluate_every=25, evaluate_batches=batches))
    clock, iterations, _ = push(stream)
    assert (clock.locked, clock.period) == (True, stream.period)
    found = final_numbering(iterations)
    seen = np.isin(stream.end_ns, [row.end_ns for row in found])
    for evaluation in np.flatnonzero(stream.disturbed):
        assert seen[evaluation + 1 : evaluation + 4].any(), "not locked again within three iterations"
    assert np.max([row.seconds for row in found]) < 1.2
    assert len(found) >= 110 - 4 * 3
    assert found[-1].pattern == found[0].pattern


def test_pauses_are_in_the_time_of_their_iteration():
    stream = make_stream(LAYOUTS[0], 40, disturbances=Disturbances(pause_every=15))
    _, iterations, _ = push(stream)
    assert_true_times(final_numbering(iterations), stream)


def test_slow_iterations_show_at_their_number():
    truth_s = np.ones(60)
    truth_s[30:40] = 2.0
    _, iterations, _ = push(make_stream(LAYOUTS[0], 60, truth_s))
    slow = [row.index for row in final_numbering(iterations) if row.seconds > 1.5]
    assert slow == list(range(30, 40))


@pytest.mark.parametrize(
    "after", [Megatron(tp=2, dp=2, pp=2, micro_batches=10), Megatron(tp=2, dp=2, pp=2, layers=5)], ids=str
)
def test_changed_work_is_another_pattern(after):
    stream = make_stream([LAYOUTS[0], after], [30, 30])
    clock, iterations, _ = push(stream, 50)
    assert (clock.locked, clock.period) == (True, len(after.iteration(np.random.default_rng(0))))
    assert iterations[-1].pattern == clock.pattern > iterations[0].pattern
    assert abs(iterations[-1].index - 59) <= 6
    after_change = [row for row in iterations if row.pattern == clock.pattern]
    assert after_change[0].end_ns <= stream.end_ns[36]


def test_same_number_of_other_calls_is_another_pattern():
    stream = make_stream([DDP(buckets=6, logged=True), DDP(buckets=6, equal=3, logged=True)], [20, 20])
    clock, iterations, _ = push(stream, 5)
    assert clock.locked
    assert iterations[0].pattern < iterations[-1].pattern


def test_gap_is_not_timed_as_an_iteration():
    stream = make_stream(LAYOUTS[0], 40, np.ones(40))
    cut, lost = len(stream.symbols) // 2, 3 * stream.period + 7
    clock = IterationClock()
    iterations = clock.push(stream.symbols[:cut], stream.t_ns[:cut])
    clock.gap()
    iterations += clock.push(stream.symbols[cut + lost :], stream.t_ns[cut + lost :])
    assert max(row.seconds for row in iterations) < 1.2
    assert iterations[-1].index == 39


def test_memory_stays_bounded():
    stream = make_stream(LAYOUTS[0], 100)
    clock = IterationClock()
    for block in range(40):
        clock.push(stream.symbols, stream.t_ns + block * 100 * 10**9)
    assert clock.locked
    assert len(clock._buffer) < 2**18


def test_noise_never_locks():
    symbols = np.random.default_rng(0).integers(0, 2**63, size=200, dtype=np.uint64)
    noise = symbols[np.random.default_rng(1).integers(0, 200, size=20_000)]
    clock = IterationClock()
    assert clock.push(noise, np.arange(20_000, dtype=np.int64)) == []
    assert clock.period is None


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(1, 10**6), which=st.integers(0, len(LAYOUTS) - 1), step=st.integers(5, 3000))
def test_permuting_operations_in_the_records_changes_nothing(seed, which, step):
    stream = make_stream(LAYOUTS[which], 12)
    records = stream.records()
    operations = np.arange(layout.GH_OP_WAIT_SIGNAL + 1, dtype=np.uint8)
    records["op"] = np.random.default_rng(seed).permutation(operations)[records["op"]]
    assert push(stream, step)[1] == push(stream, step, symbols=symbols(records))[1]


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(1, 10**6), which=st.integers(0, len(LAYOUTS) - 1), step=st.integers(5, 3000))
def test_renaming_kinds_and_sizes_changes_nothing(seed, which, step):
    stream = make_stream(LAYOUTS[which], 12)
    rng = np.random.default_rng(seed)
    halves = []
    for half in (stream.symbols >> np.uint64(32), stream.symbols & np.uint64(2**32 - 1)):
        known, which_of = np.unique(half, return_inverse=True)
        halves.append(rng.permutation(known)[which_of])
    other = halves[0] << np.uint64(32) | halves[1]
    assert push(stream, step)[1] == push(stream, step, symbols=other)[1]


@settings(max_examples=40, deadline=None)
@given(
    tp=st.sampled_from([1, 2, 8]),
    dp=st.sampled_from([1, 2, 4]),
    pp=st.sampled_from([1, 2, 4]),
    layers=st.integers(1, 12),
    micro_batches=st.integers(1, 24),
    distributed_optimizer=st.booleans(),
    chunks=st.sampled_from([1, 2]),
    data=st.data(),
)
def test_any_megatron_layout(tp, dp, pp, layers, micro_batches, distributed_optimizer, chunks, data):
    stage = data.draw(st.integers(0, pp - 1))
    if pp == 1 or micro_batches % pp:
        chunks = 1
    model = Megatron(tp, dp, pp, stage, layers, micro_batches, 3, distributed_optimizer, chunks)
    stream = make_stream(model, 60)
    clock, _, _ = push(stream, 500)
    assert clock.period == stream.period


@settings(max_examples=30, deadline=None)
@given(
    layers=st.integers(2, 60),
    micro_batches=st.sampled_from([1, 2, 4, 8]),
    replicas=st.sampled_from([1, 2]),
    clip=st.booleans(),
    layer_kinds=st.sampled_from([1, 2, 4]),
    root=st.booleans(),
)
def test_any_fully_sharded(layers, micro_batches, replicas, clip, layer_kinds, root):
    model = FSDP(layers, micro_batches, True, replicas, clip, layer_kinds, root)
    stream = make_stream(model, 40)
    clock, _, _ = push(stream, 100)
    assert clock.period == stream.period
