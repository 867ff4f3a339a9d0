"""What is asked of detection, on one draw of the labelled series (`make detection` measures more of them)."""

import pytest

from greyhound.bench.detection import figures
from greyhound.bench.verdicts import verdicts_of

SEED = 1


@pytest.fixture(scope="module")
def measured():
    return {figure.name: figure for figure in figures(verdicts_of(SEED))}


NAMES = [
    "compute: accuracy",
    "communication: series right",
    "false alarms in healthy series",
    "fail-slows missed",
    "staircases and ramps missed",
    "onset of steps, worst",
    "onset of the gradual, worst",
    "slow-down, worst",
    "end, worst",
    "delay, median",
    "delay, 95th percentile",
]


@pytest.mark.parametrize("name", NAMES)
def test_the_labelled_series_are_judged_as_asked(measured, name):
    assert measured[name].met, measured[name].sentence()


def test_each_figure_is_looked_at(measured):
    assert list(measured) == NAMES
