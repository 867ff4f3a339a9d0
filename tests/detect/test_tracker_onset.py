"""Where the tracker places what it found, and how slow it says that it was."""

import numpy as np
import pytest

from greyhound.detect.onset import rise_crosses, split
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


def test_rise_is_told_from_a_step():
    step = np.concatenate([np.zeros(60), np.full(8, 0.2)])
    rise = np.concatenate([np.zeros(60), np.linspace(0, 0.2, 60)])
    assert split(step) == 60
    assert rise_crosses(step, 60, 0.2, 0.08) is None
    crossing = rise_crosses(rise, 90, 0.2, 0.08)
    assert crossing is not None
    assert abs(crossing - 84) <= 2
