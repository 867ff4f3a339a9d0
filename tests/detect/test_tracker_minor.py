"""Levels below the threshold that last."""

import pytest

from greyhound.detect.tracker import Minor, Opened, Tracker, TrackerConfig
from tests.detect.test_tracker import findings, jitter


def minors(series, config=None):
    return [row for row in findings(series, config) if isinstance(row, Minor)]


@pytest.mark.parametrize("spread", [0.003, 0.015])
@pytest.mark.parametrize("level", [1.04, 1.07])
def test_level_that_holds_for_300_iterations_is_reported_once(level, spread):
    series = 0.5 * jitter(4000, spread)
    series[500:] *= level
    (only,) = findings(series)
    assert isinstance(only, Minor)
    assert abs(only.onset - 500) <= 16
    assert 800 <= only.reported <= 816
    assert only.level == pytest.approx(level, abs=0.01)
    assert only.healthy_s == pytest.approx(0.5, rel=0.01)
    assert only.level_s == pytest.approx(only.level * only.healthy_s)


def test_shorter_or_lower_is_nothing():
    short, low = jitter(2000, 0.005), jitter(2000, 0.005)
    short[500:780] *= 1.05
    low[500:] *= 1.02
    assert findings(short) == []
    assert findings(low) == []


def test_half_an_hour_of_long_iterations_is_enough():
    series = 40 * jitter(300, 0.005)
    series[100:] *= 1.05
    (only,) = findings(series)
    assert 100 + 1800 / 42 <= only.reported <= 155


def test_pauses_and_spikes_don_t_end_it():
    series = jitter(1500, 0.005)
    series[500:] *= 1.05
    series[600::50] *= 3.0
    assert len(minors(series)) == 1


def test_recovery_ends_it_and_the_next_is_another():
    series = jitter(2500, 0.005)
    series[500:1000] *= 1.05
    series[1600:2200] *= 1.05
    first, second = minors(series)
    assert abs(first.onset - 500) <= 16
    assert abs(second.onset - 1600) <= 16


def test_higher_level_is_reported_again_and_the_same_after_an_episode_is_not():
    higher = jitter(2500, 0.005)
    higher[500:] *= 1.035
    higher[1200:] *= 1.04
    assert [row.level for row in minors(higher)] == pytest.approx([1.035, 1.076], abs=0.006)
    between = jitter(2500, 0.005)
    between[500:] *= 1.05
    between[1000:1100] *= 1.3
    assert len(minors(between)) == 1


def test_minor_level_that_grows_is_a_fail_slow():
    series = jitter(1500, 0.005)
    series[500:] *= 1.05
    series[1000:] *= 1.09
    minor, episode = findings(series)
    assert isinstance(minor, Minor)
    assert isinstance(episode, Opened)
    assert episode.reported <= 1010


def test_threshold_of_three_percent_leaves_no_room():
    series = jitter(1500, 0.003)
    series[500:] *= 1.06
    config = TrackerConfig(threshold=0.03)
    assert [type(row) for row in findings(series, config)] == [Opened]


def test_threshold_changed_on_the_way_tells_nothing_twice():
    tracker = Tracker()
    series = jitter(2000, 0.003)
    series[300:] *= 1.05
    said = []
    for i, seconds in enumerate(series):
        if i == 1000:
            tracker.set_threshold(0.2)
        said += tracker.update(i, float(seconds))
    assert [type(row) for row in said] == [Minor]
