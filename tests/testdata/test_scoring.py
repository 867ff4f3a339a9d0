"""Scores of made-up reports on made-up truths."""

import math

from greyhound.detect.offline import Episode
from greyhound.testdata.faults import Truth
from greyhound.testdata.scoring import score_series, score_set

STEP = Truth(100, 100, 200, 1.5)
RAMP = Truth(100, 130, None, 1.3)


def test_a_healthy_series_is_right_without_a_report_and_wrong_with_one():
    assert not score_series([], [], 500).said_slow
    assert score_series([], [Episode(5, 9, 12, 1.2)], 500).said_slow


def test_a_found_step_is_measured():
    score = score_series([STEP], [Episode(98, 104, 203, 1.44)], 500)
    assert (score.said_slow, score.missed, score.stray) == (True, 0, 0)
    assert (score.onset_error, score.delay, score.end_late) == ((-2,), (4,), (3,))
    assert math.isclose(score.slowdown_error[0], 1.44 / 1.5 - 1)


def test_reports_elsewhere_are_stray_and_find_nothing():
    score = score_series([STEP], [Episode(40, 44, 60, 1.2), Episode(210, 215, None, 1.2)], 500)
    assert (score.said_slow, score.missed, score.stray) == (False, 1, 2)


def test_a_report_known_only_after_the_end_is_too_late():
    assert score_series([STEP], [Episode(198, 201, 210, 1.5)], 500).missed == 1


def test_on_the_way_up_each_onset_of_a_ramp_is_right():
    assert score_series([RAMP], [Episode(112, 135, None, 1.3)], 500).onset_error == (0,)
    assert score_series([RAMP], [Episode(133, 140, None, 1.3)], 500).onset_error == (3,)


def test_an_end_that_is_never_said_counts_to_the_end_of_the_series():
    assert score_series([STEP], [Episode(100, 104, None, 1.5)], 500).end_late == (300,)


def test_two_reports_of_one_fail_slow_are_one_find():
    score = score_series([STEP], [Episode(100, 104, 120, 1.1), Episode(121, 125, 200, 1.5)], 500)
    assert (score.missed, score.stray, score.delay, score.slowdown_error) == (0, 0, (4,), (0.0,))


def test_shares_of_a_set():
    rows = [score_series([STEP], [Episode(100, 104, 200, 1.5)], 500), score_series([STEP], [], 500)]
    rows += [score_series([], [], 500), score_series([], [], 500), score_series([], [Episode(1, 2, 3, 1.2)], 500)]
    score = score_set(rows)
    assert (score.accuracy, score.false_positive_rate, score.false_negative_rate) == (3 / 5, 1 / 3, 1 / 2)
    assert (score.wrong, score.missed, score.stray, score.false_alarms) == (2, 1, 0, 1)
    assert score.quantile("delay", 0.5) == 4
    assert math.isnan(score_set([]).quantile("delay", 0.5))
