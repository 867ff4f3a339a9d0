"""The interval of a paired difference: against a textbook example, and by what must never change it."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from greyhound.detect.paired import difference

TIMES = st.lists(st.tuples(st.floats(0.1, 10.0), st.floats(0.1, 10.0)), min_size=3, max_size=40)


def test_equals_a_hand_computed_interval():
    found = difference([1.0, 1.0, 1.0, 1.0], [1.01, 1.03, 1.02, 1.02])
    # Shares .01 .03 .02 .02: mean .02, deviation .00816497, error .00408248, t(3, 97.5 %) = 3.182446.
    assert found.mean == pytest.approx(0.02)
    assert found.high - found.mean == pytest.approx(3.182446 * 0.00408248, rel=1e-4)
    assert found.is_clear


@given(TIMES, st.floats(0.001, 1000.0))
def test_the_unit_of_time_changes_nothing(pairs, factor):
    a, b = zip(*pairs, strict=True)
    plain, scaled = difference(a, b), difference([factor * x for x in a], [factor * x for x in b])
    assert math.isclose(plain.mean, scaled.mean, rel_tol=1e-6, abs_tol=1e-9)
    assert math.isclose(plain.high, scaled.high, rel_tol=1e-6, abs_tol=1e-9)


def test_the_interval_holds_the_truth_about_as_often_as_it_says():
    random, hits = np.random.default_rng(3), 0
    for _ in range(1000):
        a = 1 + 0.02 * random.standard_normal(12)
        b = (1 + 0.02 * random.standard_normal(12)) * 1.005
        found = difference(a, b)
        hits += found.low <= 0.0054 <= found.high  # 0.5 % and the 0.04 % that 1 / a adds in the mean
    assert 930 <= hits <= 970


@pytest.mark.parametrize(
    ("a", "b", "word"),
    [([1.0, 1.0], [1.0, 1.0], "at least 3"), ([1.0] * 4, [1.0] * 3, "pairs"), ([1.0] * 3, [1.0, 0.0, 1.0], "positive")],
)
def test_what_is_no_pair_is_refused(a, b, word):
    with pytest.raises(ValueError, match=word):
        difference(a, b)
