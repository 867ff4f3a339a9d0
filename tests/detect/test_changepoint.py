"""BOCD against what its model says must happen."""

import numpy as np
import pytest

from greyhound.bench.tracker import UnprunedBocd
from greyhound.detect.changepoint import Bocd, LatestChange


def masses(series, detector=None):
    detector = detector or Bocd()
    return np.array([detector.update(float(x)) for x in series])


def noisy(count, seed=0):
    return np.random.default_rng(seed).normal(0, 0.02, count)


def test_step_is_seen_and_forgotten():
    series = noisy(200)
    series[100:] += 0.17
    mass = masses(series)
    assert mass[20:100].max() < 0.3
    assert mass[100:104].max() > 0.9
    assert mass[115:].max() < 0.3


def test_shift_changes_nothing():
    series = noisy(150)
    series[80:] += 0.3
    assert masses(series + 5.0) == pytest.approx(masses(series), abs=1e-9)


def test_mass_on_recent_is_never_less_than_the_hazard():
    assert masses(noisy(300)).min() >= 1 / 250


def test_run_lengths_are_pruned():
    detector = Bocd()
    carried = []
    for x in noisy(3000):
        detector.update(float(x))
        carried.append(detector.run_lengths)
    assert max(carried) <= 48


@pytest.mark.parametrize("seed", range(4))
def test_agrees_with_a_filter_that_prunes_nothing(seed):
    series = noisy(300, seed)
    series[60:] += 0.1
    series[200:203] += 0.5
    assert masses(series) == pytest.approx(masses(series, UnprunedBocd()), abs=0.02)


def test_huge_jump_doesn_t_break_it():
    mass = masses([0.0] * 30 + [700.0] * 10 + [-700.0] * 10)
    assert np.isfinite(mass).all()
    assert mass[30] > 0.5


def test_asked_rarely_it_answers_from_the_latest_values_alone():
    """As much as the filter that took each of them, within what 64 values tell of the level."""
    series = noisy(500, 3)
    series[250:256] += 0.2
    series[400:] += 0.1
    each = masses(series)
    for at in (10, 63, 64, 65, 200, 251, 254, 300, 401, 404, 420):
        late = LatestChange()
        for x in series[: at + 1]:
            late.add(float(x))
        assert late.probability() == pytest.approx(each[at], abs=0.1), at
        assert late.probability() == pytest.approx(each[at], abs=0.1), "asked again"


def test_asked_each_time_it_is_the_filter_itself():
    late = LatestChange()
    series = noisy(200, 5)
    series[120:] += 0.2
    answers = []
    for x in series:
        late.add(float(x))
        answers.append(late.probability())
    assert answers == pytest.approx(list(masses(series)), abs=1e-12)
    assert LatestChange().probability() == 0.0
