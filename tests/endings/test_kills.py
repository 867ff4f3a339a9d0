"""kill -9 of our processes at random moments: the training ends as always, its losses are the same to the last bit."""

import pytest

from tests.endings.bed import Bed
from tests.endings.killer import OURS, Small, campaign

pytestmark = pytest.mark.cluster


def test_a_few_kills_at_random_moments_change_nothing(bed: Bed):
    killed, steps = campaign(bed, Small(), at_once=2, seed=1, kills=15)
    assert steps > 1
    assert set(killed) <= set(OURS)
