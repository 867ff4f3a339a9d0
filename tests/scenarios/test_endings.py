"""Many steps ended in every way, each beside one without us (make scenarios); the result goes to docs/endings.md.

ENDINGS=N sets how many of each kind there are, `-k` picks kinds; what earlier runs found stays, in build/endings.json.
The delay is the median over the pairs of the time from the end of the last task to srun's return.
"""

import concurrent.futures
import os
import random
import time
from collections.abc import Iterator

import pytest

from tests.endings.bed import Bed, open_bed
from tests.endings.outcome import Ending, end_once
from tests.endings.ways import WAYS, Way
from tests.scenarios.endings_page import add_pairs

pytestmark = [pytest.mark.cluster, pytest.mark.scenario]
EACH = int(os.environ.get("ENDINGS", "10"))
MOST_DELAY_MS = 100
TICK_S, A_TICK = 30, 2  # how often slurmctld looks for jobs beyond their limit, and how many pairs are to be then
AT_ONCE = int(os.environ.get("ENDINGS_AT_ONCE", "4"))


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    with open_bed(f"ends{os.getpid() % 10000}") as opened:
        yield opened


def pair(bed: Bed, way: Way) -> tuple[Ending, Ending]:
    """(watched, bare), one after the other, which first is chance; at its own moment, for two cores' sake."""
    time.sleep(random.uniform(0, AT_ONCE))
    found = {watched: end_once(bed, way, watched) for watched in random.sample([True, False], 2)}
    return found[True], found[False]


def pairs(bed: Bed, way: Way) -> list[tuple[Ending, Ending]]:
    """Some at once; of those that wait for Slurm's clock a few for each of its ticks, with and without us."""
    if way.waits_s <= 60:
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(lambda _: pair(bed, way), range(EACH)))

    def later(number: int, watched: bool) -> Ending:
        time.sleep(TICK_S * (number // A_TICK))
        return end_once(bed, way, watched)

    with concurrent.futures.ThreadPoolExecutor(2 * EACH) as pool:
        both = [(pool.submit(later, number, True), pool.submit(later, number, False)) for number in range(EACH)]
    return [(watched.result(), bare.result()) for watched, bare in both]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_endings(bed: Bed, way: Way) -> None:
    row = add_pairs(way.name, pairs(bed, way), bed.bad_nodes(), bed.sandbox.state.release)
    print(row)
    assert row.codes == row.codes_without
    assert row.drained == 0
    assert row.delay_ms is None or row.delay_ms <= MOST_DELAY_MS
