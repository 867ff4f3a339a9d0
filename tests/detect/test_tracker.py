"""The tracker on injected steps, spikes and drifts, and the properties it must keep on any input."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from greyhound.detect.tracker import Closed, Minor, Opened, Regime, Tracker, TrackerConfig


def findings(series, config=None):
    tracker = Tracker(config)
    return [finding for i, seconds in enumerate(series) for finding in tracker.update(i, float(seconds))]


def opened(series, config=None):
    return [finding for finding in findings(series, config) if isinstance(finding, Opened)]


def ratio(finding):
    return finding.level if isinstance(finding, Minor) else finding.slowdown


def jitter(count, spread, seed=0):
    return np.exp(np.random.default_rng(seed).normal(0, spread, count))


@pytest.mark.parametrize("factor", [1.18, 1.3, 2.0])
@pytest.mark.parametrize("spread", [0.0, 0.01, 0.02])
@pytest.mark.parametrize("onset", [14, 40, 300])
def test_step_is_found_and_so_is_its_end(factor, spread, onset):
    series = 0.7 * jitter(onset + 90, spread)
    series[onset : onset + 50] *= factor
    first, last = findings(series)
    assert isinstance(first, Opened)
    assert isinstance(last, Closed)
    assert abs(first.onset - onset) <= 1
    assert first.reported - onset <= (8 if factor > 1.75 else 5)
    assert first.slowdown == pytest.approx(factor, rel=0.06)
    assert first.healthy_s == pytest.approx(0.7, rel=0.03)
    assert abs(last.end - (onset + 50)) <= 1
    assert last.reported - (onset + 50) <= 8
    assert last.slowdown == pytest.approx(factor, rel=0.04)
    assert last.lost_s == pytest.approx(50 * 0.7 * (factor - 1), rel=0.15)


@pytest.mark.parametrize("spread", [0.0, 0.01, 0.03])
@pytest.mark.parametrize(("factor", "least"), [(1.2, 5), (1.6, 6), (2.5, 9)])
def test_step_is_found_as_soon_as_it_is_longer_than_a_pause_of_its_height(spread, factor, least):
    step = 0.7 * jitter(60, spread)
    step[30:] *= factor
    assert [finding.reported for finding in opened(step)] == [30 + least - 1]
    pause = 0.7 * jitter(60, spread)
    pause[30 : 30 + least - 1] *= factor
    assert opened(pause) == []


def test_most_steps_are_found_in_time_under_heavy_jitter():
    delays, slowdowns = [], []
    for seed in range(40):
        series = jitter(160, 0.05, seed)
        series[80:] *= 1.25
        found = [row for row in opened(series) if row.reported >= 80]
        delays.append(found[0].reported - 80 if found else math.inf)
        slowdowns.append(found[0].slowdown if found else 0.0)
    assert np.mean(np.array(delays) <= 5) >= 0.9
    assert np.median(slowdowns) == pytest.approx(1.25, rel=0.05)


@pytest.mark.parametrize("spread", [0.005, 0.02, 0.06])
def test_spikes_never_open_an_episode(spread):
    rng = np.random.default_rng(1)
    series = jitter(4000, spread, 1)
    spikes = rng.random(4000) < 0.02
    series[spikes] *= rng.uniform(1.3, 4.0, spikes.sum())
    assert findings(series) == []


@pytest.mark.parametrize("every", [2, 3, 10, 100])
def test_periodic_spikes_never_open_an_episode(every):
    series = jitter(2000, 0.01)
    series[::every] *= 1.5
    assert findings(series) == []


def test_staircase_of_small_steps_is_found_when_it_adds_up():
    series = jitter(1200, 0.01)
    for step, at in enumerate(range(200, 1200, 200)):
        series[at:] *= 1.04 if step < 4 else 1.0
    (only,) = opened(series)
    assert 600 <= only.reported <= 1000


def test_slow_first_iteration_is_no_guide():
    series = jitter(100, 0.01)
    series[0], series[1] = 60.0, 1.4
    assert findings(series) == []


def test_threshold_is_configurable():
    series = jitter(200, 0.005)
    series[100:] *= 1.06
    assert opened(series) == []
    assert len(opened(series, TrackerConfig(threshold=0.03))) == 1


def test_properties_follow_the_series():
    tracker = Tracker(TrackerConfig(warmup=5))
    assert (tracker.healthy_s, tracker.slow) == (None, False)
    for i in range(20):
        tracker.update(i, 2.0)
    assert tracker.healthy_s == pytest.approx(2.0)
    for i in range(20, 40):
        tracker.update(i, 3.0)
    assert tracker.slow
    assert tracker.healthy_s == pytest.approx(2.0)


def test_numbers_that_begin_again_restart_the_tracker():
    tracker = Tracker()
    for i in range(40):
        tracker.update(i, 1.0)
    assert [finding for i in range(40) for finding in tracker.update(i, 8.0)] == []
    assert tracker.healthy_s == pytest.approx(8.0)


def test_other_work_is_a_regime():
    tracker = Tracker()
    for i in range(60):
        tracker.update(i, 1.0 if i < 40 else 2.0)
    closed, regime = tracker.pattern_changed(60)
    assert isinstance(closed, Closed)
    assert closed.end == 60
    assert isinstance(regime, Regime)
    assert [finding for i in range(60, 120) for finding in tracker.update(i, 3.0)] == []


def test_numbers_that_begin_again_are_no_regime():
    tracker = Tracker()
    for i in range(40):
        tracker.update(i, 1.0)
    assert tracker.pattern_changed(3) == []
    assert tracker.healthy_s is None


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
def test_what_is_no_time_is_refused(seconds):
    with pytest.raises(ValueError, match="iteration 7"):
        Tracker().update(7, seconds)


# A level and a spread of jitter, then steps, ramps and spikes at random.
shapes = st.lists(st.tuples(st.integers(1, 60), st.floats(0.4, 3.0)), min_size=1, max_size=8)


def build(shape, spread, seed):
    levels = np.concatenate([np.full(length, level) for length, level in shape])
    return levels * jitter(len(levels), spread, seed)


@settings(max_examples=60, deadline=None)
@given(shape=shapes, spread=st.floats(0, 0.08), seed=st.integers(0, 99), power=st.integers(-20, 20))
def test_scaling_all_times_changes_nothing(shape, spread, seed, power):
    series = build(shape, spread, seed)
    # By iterations alone: thirty minutes are thirty minutes.
    config = TrackerConfig(minor_holds_s=math.inf)
    scaled = findings(series * 2.0**power, config)
    original = findings(series, config)
    assert [(type(row), row.onset, row.reported) for row in scaled] == [
        (type(row), row.onset, row.reported) for row in original
    ]
    for one, other in zip(original, scaled, strict=True):
        assert ratio(one) == pytest.approx(ratio(other))


@given(seconds=st.floats(1e-6, 1e6), count=st.integers(1, 300))
@settings(max_examples=30, deadline=None)
def test_constant_series_never_alarms(seconds, count):
    assert findings([seconds] * count) == []


@settings(max_examples=60, deadline=None)
@given(
    count=st.integers(30, 200),
    spread=st.floats(0, 0.05),
    seed=st.integers(0, 20),
    at=st.integers(0, 199),
    height=st.floats(1.1, 1000),
)
def test_one_spike_never_opens_an_episode(count, spread, seed, at, height):
    series = jitter(count, spread, seed)
    before = findings(series)
    series[at % count] *= height
    assert len(opened(series)) <= len([row for row in before if isinstance(row, Opened)])


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(st.tuples(st.integers(10, 60), st.floats(0.3, 1.0)), min_size=1, max_size=6),
    spread=st.floats(0, 0.02),
    seed=st.integers(0, 99),
)
def test_speed_up_is_never_a_fail_slow(steps, spread, seed):
    levels = np.cumprod([factor for _, factor in steps])
    shape = [(40, 1.0)] + [(length, level) for (length, _), level in zip(steps, levels, strict=True)]
    assert opened(build(shape, spread, seed)) == []


@settings(max_examples=60, deadline=None)
@given(shape=shapes, spread=st.floats(0, 0.08), seed=st.integers(0, 99), data=st.data())
def test_no_finding_uses_the_future(shape, spread, seed, data):
    series = build(shape, spread, seed)
    cut = data.draw(st.integers(0, len(series)))
    assert findings(series[:cut]) == [row for row in findings(series) if row.reported < cut]
