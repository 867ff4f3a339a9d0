"""A step of a real training, ended in every way: nothing is left, the node stays in use, srun says what it always says.

The time limit takes a minute and more: `make scenarios` has it, and many of each kind.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.endings.bed import Bed
from tests.endings.outcome import Ending, end_once
from tests.endings.ways import WAYS, Way

pytestmark = pytest.mark.cluster
HERE = [way for way in WAYS if way.waits_s <= 60]
AT_ONCE = 4  # most of a step's time is waiting

Endings = dict[tuple[str, bool], Future[Ending]]


@pytest.fixture(scope="module")
def endings(bed: Bed) -> Iterator[Endings]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {
            (way.name, watched): pool.submit(end_once, bed, way, watched, followed=False)
            for way in HERE
            for watched in (True, False)
        }


@pytest.mark.parametrize("way", HERE, ids=lambda way: way.name)
def test_a_step_that_ends_so_leaves_nothing_and_says_what_it_says_without_us(endings: Endings, way: Way):
    watched, bare = (endings[way.name, watched].result() for watched in (True, False))
    assert (watched.code, watched.state) == (bare.code, bare.state)


@pytest.mark.parametrize("way", [way for way in HERE if way.said], ids=lambda way: way.name)
def test_what_died_of_ours_is_said_once(endings: Endings, way: Way):
    said = endings[way.name, True].result().said
    assert len(said) == 1 and way.said in said[0], said


def test_no_node_was_drained(bed: Bed, endings: Endings):
    for future in endings.values():
        future.exception()
    assert bed.bad_nodes() == []
