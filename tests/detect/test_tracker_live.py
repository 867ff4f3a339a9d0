"""Where the calls leave evaluations out of the iterations, a large shift is reported at once."""

import numpy as np
import pytest

from greyhound.detect.tracker import Opened, Tracker, TrackerConfig


def delay(slowdown, noise, config, before=60):
    """Slow iterations until the report, that one included; None if it didn't come in 40."""
    random = np.random.default_rng(7)
    tracker = Tracker(config)
    for number in range(before + 40):
        seconds = (slowdown if number >= before else 1.0) * (1 + noise * random.standard_normal())
        if any(isinstance(finding, Opened) for finding in tracker.update(number, seconds)):
            return number - before + 1
    return None


@pytest.mark.parametrize(("slowdown", "iterations"), [(1.3, 4), (1.5, 4), (2.0, 4), (10.0, 4), (1.15, 5)])
def test_large_shifts_need_four_iterations_and_small_ones_five(slowdown, iterations):
    assert delay(slowdown, 0.01, TrackerConfig(holds_pauses=False)) == iterations


def test_a_log_is_given_more_time_for_what_may_be_an_evaluation():
    assert delay(2.0, 0.01, TrackerConfig()) == 9


def test_noise_is_no_shift_whatever_the_patience():
    assert all(
        delay(1.0, noise, TrackerConfig(holds_pauses=False), before=500) is None for noise in (0.001, 0.03, 0.08)
    )
