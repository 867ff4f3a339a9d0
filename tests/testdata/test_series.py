"""The labelled series: in the paper's proportions, reproducible, and true to their labels."""

import itertools

import numpy as np
import pytest

from greyhound.testdata import jitter
from greyhound.testdata.faults import BAR
from greyhound.testdata.series import communication_series, compute_series, labelled_set


@pytest.fixture(scope="module")
def series():
    return list(labelled_set(1))


def count(rows, kind, cause):
    return sum(row.kind == kind and row.cause == cause for row in rows)


def test_the_papers_proportions(series):
    causes = ("healthy", "cpu", "gpu", "congestion")
    assert [count(series, "compute", cause) for cause in causes] == [386, 4, 2, 0]
    assert [count(series, "communication", cause) for cause in causes] == [64, 1, 0, 42]
    assert all(bool(row.truth) == (row.cause != "healthy") for row in series)


@pytest.mark.parametrize(
    ("make", "loss", "minutes"), [(compute_series, 0.1179, 10), (communication_series, 0.1545, 24)]
)
def test_losses_and_durations_are_about_the_papers(make, loss, minutes):
    slow = [row for seed in range(6) for row in itertools.takewhile(lambda row: row.truth, make(seed))]
    lasted_s = [((t.end or len(row.seconds)) - t.onset) * row.healthy_s for row in slow for t in row.truth]
    assert np.mean([row.jct_slowdown for row in slow]) == pytest.approx(loss, rel=0.35)
    assert np.mean(lasted_s) / 60 == pytest.approx(minutes, rel=0.35)


def test_a_seed_gives_the_same_series_again_and_another_seed_others():
    first, again, other = (next(communication_series(seed)) for seed in (3, 3, 4))
    assert np.array_equal(first.seconds, again.seconds)
    assert len(first.seconds) != len(other.seconds) or not np.array_equal(first.seconds, other.seconds)


def test_labels_lie_inside_their_series_and_name_what_is_there(series):
    for row in series:
        last = 0
        for truth in row.truth:
            end = truth.end or len(row.seconds)
            assert last < truth.onset < end <= len(row.seconds)
            assert truth.slowdown >= BAR
            inside = np.median(row.seconds[truth.onset : end]) / row.healthy_s
            assert inside == pytest.approx(truth.slowdown, rel=0.06), row.name
            last = end


def test_healthy_levels_stay_below_the_bar():
    for seed in range(200):
        level = jitter.healthy_level(np.random.default_rng(seed), 1800)
        assert jitter.highest_rise(level) <= 1 + jitter.HEALTHY_CEILING + 0.005


def test_all_times_are_positive_and_finite(series):
    assert all(np.isfinite(row.seconds).all() and (row.seconds > 0).all() for row in series)
