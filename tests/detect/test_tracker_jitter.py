"""What real jobs do besides training, and what the tracker must make of it."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from greyhound.detect.methods import METHODS
from greyhound.detect.offline import OfflineRun
from greyhound.detect.tracker import Closed, Opened, Tracker, TrackerConfig
from tests.detect.test_tracker import build, findings, jitter, opened, shapes


def neighbours_alike(count, spread, correlation, seed):
    """AR(1) in log units, as factors."""
    fresh = np.random.default_rng(seed).normal(0, spread * math.sqrt(1 - correlation**2), count)
    out = np.empty(count)
    last = 0.0
    for at in range(count):
        out[at] = last = correlation * last + fresh[at]
    return np.exp(out)


@pytest.mark.parametrize("height", [1.5, 2.5, 4.0])
@pytest.mark.parametrize("length", [1, 3, 5])
def test_evaluations_of_several_iterations_are_no_fail_slow(height, length):
    series = jitter(1600, 0.01)
    for start in range(200, 1600, 200):
        series[start : start + length] *= height
    assert opened(series) == []


def test_long_evaluations_are_known_from_the_third_on():
    series = jitter(2000, 0.01)
    for start in range(200, 2000, 200):
        series[start : start + 12] *= 1.5
    assert [row.onset for row in opened(series)] == [200, 400]


def test_fail_slow_between_evaluations_is_found():
    series = jitter(1600, 0.01)
    for start in range(200, 1600, 200):
        series[start : start + 5] *= 2.0
    series[1050:1150] *= 1.3
    (only,) = opened(series)
    assert abs(only.onset - 1050) <= 1
    assert only.reported <= 1060


def test_what_follows_a_checkpoint_must_last_longer():
    pause = jitter(400, 0.005)
    pause[250:256] *= (20.0, 1.15, 1.16, 1.14, 1.15, 1.13)
    assert opened(pause) == []
    step = jitter(400, 0.005)
    step[250] *= 20.0
    step[251:] *= 1.15
    assert [row.reported for row in opened(step)] == [258]


@pytest.mark.parametrize("seed", range(4))
def test_level_below_the_threshold_is_none_however_long_and_noisy(seed):
    series = neighbours_alike(3000, 0.02, 0.5, seed)
    series[300:] *= 1.06
    assert opened(series) == []


@pytest.mark.parametrize("share", [0.1, 0.3])
def test_two_speeds_at_random_are_no_fail_slow(share):
    rng = np.random.default_rng(5)
    series = jitter(3000, 0.004) * np.where(rng.random(3000) < share, 1.15, 1.0)
    assert opened(series) == []


def test_slow_fall_of_the_first_iterations_is_learnt():
    series = jitter(400, 0.01) * (1 + 1.3 * np.exp(-np.arange(400) / 20))
    series[150:] *= 1.25
    (only,) = opened(series)
    assert abs(only.onset - 150) <= 1
    assert only.slowdown == pytest.approx(1.25, rel=0.05)


@pytest.mark.parametrize("length", [60, 200])
def test_ramp_is_found_about_when_it_crosses_the_threshold(length):
    series = jitter(800, 0.008)
    series[300 : 300 + length] *= np.linspace(1, 1.3, length)
    series[300 + length :] *= 1.3
    crossing = 300 + length // 3
    (only,) = opened(series)
    assert -16 <= only.onset - crossing <= 5  # each iteration on the way there is right
    assert only.reported <= crossing + 15
    assert only.slowdown >= 1.1


def test_short_burst_of_speed_doesn_t_make_the_old_level_slow():
    series = jitter(1500, 0.01)
    series[600:750] *= 0.8
    assert opened(series) == []


def test_speed_that_lasts_is_the_healthy_level():
    series = jitter(1500, 0.01)
    series[400:] *= 0.8
    series[1000:1100] *= 1.25
    (only,) = opened(series)
    assert only.healthy_s == pytest.approx(0.8, rel=0.02)


def test_job_that_was_slow_at_first_is_slow_when_that_comes_back():
    series = jitter(400, 0.01)
    series[:50] *= 1.3
    series[200:300] *= 1.3
    assert [abs(row.onset - 200) <= 1 for row in opened(series)] == [True]


def test_end_is_placed_after_a_second_worse_level():
    series = jitter(400, 0.01)
    series[150:180] *= 1.3
    series[180:210] *= 1.8
    first, last = findings(series)
    assert isinstance(first, Opened)
    assert isinstance(last, Closed)
    assert last.end == 210
    assert last.reported <= 220


@pytest.mark.parametrize("threshold", [0.02, 0.05, 0.3, 1.0])
def test_threshold_of_any_size_finds_what_is_above_and_leaves_what_is_below(threshold):
    config = TrackerConfig(threshold=threshold)
    above, below = jitter(600, 0.004), jitter(600, 0.004)
    above[300:] *= 1 + 1.4 * threshold
    below[300:] *= 1 + 0.6 * threshold
    (only,) = opened(above, config)
    assert abs(only.onset - 300) <= 2
    assert only.reported <= 312
    assert opened(below, config) == []


def test_state_doesn_t_grow():
    def size(tracker):
        return sum(len(held) for held in _containers(tracker, set()))

    tracker = Tracker()
    series = jitter(6000, 0.02) * np.where(np.random.default_rng(3).random(6000) < 0.05, 1.5, 1.0)
    series[5000:] *= 1.3
    sizes = []
    for i, seconds in enumerate(series):
        tracker.update(i, float(seconds))
        if i in (2000, 4999, 5999):
            sizes.append(size(tracker))
    assert max(sizes) < 6000
    assert sizes[1] < 1.1 * sizes[0]


def _containers(thing, seen):
    """All sized containers that an object holds, itself or through others."""
    if id(thing) in seen or isinstance(thing, (str, float, int, type(None), TrackerConfig)):
        return
    seen.add(id(thing))
    if hasattr(thing, "__len__"):
        yield thing
    for inner in vars(thing).values() if hasattr(thing, "__dict__") else ():
        yield from _containers(inner, seen)


def told(series):
    run = OfflineRun(METHODS["full"](0.10, 10))
    for i, seconds in enumerate(series):
        run.feed(i, float(seconds))
    answer = run.result()
    return [(row.onset, row.reported) for row in answer.episodes], answer.minor


@settings(max_examples=30, deadline=None)
@given(shape=shapes, spread=st.floats(0, 0.05), seed=st.integers(0, 99), data=st.data())
def test_offline_answer_to_a_prefix_is_the_prefix_of_the_answer(shape, spread, seed, data):
    series = build(shape, spread, seed)
    cut = data.draw(st.integers(0, len(series)))
    episodes, minor = told(series)
    assert told(series[:cut]) == (
        [row for row in episodes if row[1] < cut],
        [row for row in minor if row.reported < cut],
    )


def test_pauses_are_remembered_among_frequent_slow_runs():
    series = neighbours_alike(4000, 0.03, 0.6, 3)
    for start in range(700, 4000, 700):
        series[start : start + 12] *= 1.8
    assert [row.onset // 700 for row in opened(series)] == [1, 2]


def test_spikes_in_a_row_are_no_level():
    series = jitter(1000, 0.003)
    series[500:505] *= (1.32, 1.32, 1.38, 1.44, 1.40)
    assert opened(series) == []


def test_far_longer_iteration_among_slow_ones_proves_nothing():
    series = jitter(600, 0.02, 2)
    series[499:508] *= (1.1, 1.06, 1.1, 1.1, 1.08, 1.2, 13.0, 1.22, 1.25)
    series[508] *= 1.25
    assert opened(series) == []
