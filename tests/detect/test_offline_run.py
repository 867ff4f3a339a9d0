"""Methods over whole series: nothing is known before its time, and the paper's methods do what they say."""

import numpy as np
import pytest

from greyhound.detect.methods import METHODS
from greyhound.detect.methods.bocd import likely_split
from greyhound.detect.offline import OfflineRun

QUIET = 1.0 + 0.004 * np.random.default_rng(1).standard_normal(400)


def run_over(seconds, method="full", iterations=None):
    run = OfflineRun(METHODS[method](0.1, 10))
    for iteration, value in zip(iterations or range(len(seconds)), seconds, strict=True):
        run.feed(iteration, float(value))
    return run.result()


def with_step(start, end, slowdown):
    seconds = QUIET.copy()
    seconds[start:end] *= slowdown
    return seconds


@pytest.mark.parametrize("method", METHODS)
def test_a_step_is_found_and_its_end(method):
    analysis = run_over(with_step(200, 260, 1.5), method)
    episode = next(row for row in analysis.episodes if abs(row.onset - 200) <= 1)
    assert episode.reported - 200 <= 8
    assert 258 <= episode.end <= 270
    assert episode.slowdown == pytest.approx(1.5, rel=0.1)
    assert analysis.n == 400


@pytest.mark.parametrize("method", METHODS)
def test_a_prefix_tells_what_was_known_by_then(method):
    seconds = with_step(150, 210, 1.3)
    seconds[300:] *= 1.4
    seconds[[60, 90, 91]] *= 3
    whole = run_over(seconds, method).episodes
    assert whole
    for length in range(11, 400, 7):
        known = [(row.onset, row.reported) for row in whole if row.reported < length]
        assert [(row.onset, row.reported) for row in run_over(seconds[:length], method).episodes] == known


def test_an_open_episode_has_no_end_and_the_slowdown_of_all_of_it():
    seconds = QUIET.copy()
    seconds[200:300] *= 1.2
    seconds[300:] *= 1.6
    (episode,) = run_over(seconds[:390]).episodes
    assert episode.end is None
    assert episode.slowdown == pytest.approx(1.2, rel=0.02)


def test_iterations_are_those_of_the_column():
    seconds = with_step(200, 260, 1.5)
    plain = run_over(seconds).episodes
    apart = run_over(seconds, iterations=[1000 + 10 * at for at in range(400)]).episodes
    assert [(row.onset, row.reported) for row in apart] == [
        (1000 + 10 * r.onset, 1000 + 10 * r.reported) for r in plain
    ]


def test_a_training_that_begins_anew_leaves_its_episode_open():
    seconds = np.concatenate((with_step(200, 400, 1.5), with_step(200, 250, 1.5)))
    first, second = run_over(seconds, iterations=[*range(400), *range(400)]).episodes
    assert (first.onset, first.end) == (200, None)
    assert second.onset == 200
    assert second.end is not None


def test_bocd_takes_small_steps_for_changes_and_verification_does_not():
    seconds = with_step(200, 300, 1.05)
    assert run_over(seconds, "bocd").episodes
    assert not run_over(seconds, "bocdv").episodes


def test_verification_by_means_is_fooled_by_a_pause_as_in_the_paper():
    seconds = QUIET.copy()
    seconds[200] *= 8
    assert run_over(seconds, "bocdv").episodes
    assert not run_over(seconds, "full").episodes


def test_the_window_needs_a_mean_of_a_tenth_more():
    seconds = QUIET.copy()
    seconds[200] *= 1.5
    assert not run_over(seconds, "window").episodes
    seconds[200] *= 3
    assert run_over(seconds, "window").episodes


def test_the_likely_split_is_where_the_means_differ_most():
    values = [1.0] * 20 + [2.0] * 3
    assert likely_split(values, 7) == 20
    assert likely_split(values, 2) == 21
    assert likely_split([1.0], 7) is None
