"""A step of a real training, ended in every way: nothing is left, the node stays in use, srun says what it always says.

The time limit takes a minute and more: `make scenarios` has it, and many of each kind.
"""

import pytest

from tests.endings.bed import Bed
from tests.endings.outcome import end_once
from tests.endings.ways import WAYS, Way

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("way", [way for way in WAYS if way.waits_s <= 60], ids=lambda way: way.name)
def test_a_step_that_ends_so_leaves_nothing_and_says_what_it_says_without_us(bed: Bed, way: Way):
    watched, bare = end_once(bed, way, True), end_once(bed, way, False)
    assert (watched.code, watched.state) == (bare.code, bare.state)
    assert bed.bad_nodes() == []
