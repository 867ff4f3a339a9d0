"""Where the tracker places what it found, and how slow it says that it was."""

import numpy as np
import pytest

from greyhound.detect.onset import split, stays_above
from greyhound.detect.tracker import Closed
from tests.detect.test_tracker import findings, jitter, opened


@pytest.mark.parametrize("length", [60, 100, 200])
@pytest.mark.parametrize("spread", [0.004, 0.012])
def test_rise_begins_before_it_crosses_the_threshold(length, spread):
    series = jitter(900, spread, length)
    series[400 : 400 + length] *= np.linspace(1, 1.3, length)
    series[400 + length :] *= 1.3
    (only,) = opened(series)
    assert 400 <= only.onset <= 400 + length // 3 + 5
    assert only.reported <= 400 + length // 3 + 15


def test_step_right_behind_a_pause_begins_after_it():
    series = jitter(500, 0.005)
    series[300:304] *= (3.0, 1.45, 1.45, 1.4)
    series[306:] *= 1.16
    (only,) = opened(series)
    assert only.onset == 306


def test_staircase_just_above_the_threshold_begins_with_its_step():
    series = jitter(900, 0.008, 3)
    series[300:] *= 1.055
    series[400:] *= 1.055
    series[480:] *= 1.055
    (only,) = opened(series)
    assert 300 <= only.onset <= 405


@pytest.mark.parametrize("every", [2, 4, 8, 16])
def test_long_episode_is_as_slow_as_most_of_its_iterations(every):
    series = jitter(6000, 0.005)
    series[300:5500] *= 1.2
    series[::every] *= 1.25 if every > 2 else 1.0
    closed = [row for row in findings(series) if isinstance(row, Closed)]
    assert [row.slowdown for row in closed] == pytest.approx([1.2], rel=0.03)


def test_each_shape_begins_where_it_comes_to_stay_above():
    step = np.concatenate([np.zeros(60), np.full(8, 0.2)])
    rise = np.concatenate([np.zeros(60), np.linspace(0, 0.2, 60)])
    stairs = np.repeat([0.0, 0.05, 0.1, 0.15], (60, 40, 40, 8))
    assert split(step) == stays_above(step, 0.08, 64) == 60
    assert abs(stays_above(rise, 0.08, 116) - 84) <= 1
    assert stays_above(stairs, 0.08, 144) == 100


@pytest.mark.parametrize("seed", range(4))
def test_staircase_begins_with_the_stair_above_the_threshold_and_not_in_the_middle_of_it(seed):
    """A straight rise would fit three stairs well enough; it crosses the threshold between two of them."""
    series = jitter(900, 0.006, seed)
    series[300:340] *= 1.05
    series[340:380] *= 1.095
    series[380:] *= 1.155
    (only,) = opened(series)
    assert 300 <= only.onset <= 342
    assert only.reported >= 380


def test_spikes_at_the_end_of_a_window_dont_draw_the_onset_to_them():
    series = jitter(900, 0.02, 6)
    series[340:] *= 1.125
    series[351:355] *= 1.15
    (only,) = opened(series)
    assert abs(only.onset - 340) <= 5


@pytest.mark.parametrize("level", [1.05, 1.07, 1.085])
@pytest.mark.parametrize("slowdown", [1.18, 1.3])
def test_a_lasting_level_below_the_threshold_is_no_part_of_a_step_above_it(level, slowdown):
    series = jitter(900, 0.006, 5)
    series[300:400] *= level
    series[400:] *= slowdown
    (only,) = opened(series)
    assert abs(only.onset - 400) <= 2
