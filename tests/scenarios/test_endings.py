"""Many steps ended in every way, each beside one without us (make scenarios); the result goes to docs/endings.md.

ENDINGS=N sets how many of each kind there are. The delay is the median over the pairs of the time from the end of the
last task to srun's return.
"""

import concurrent.futures
import os
from collections.abc import Iterator

import pytest

from tests.conftest import REPOSITORY
from tests.endings.bed import Bed, open_bed
from tests.endings.outcome import Ending, end_once, keep, summarise, write_page
from tests.endings.ways import WAYS, Way

pytestmark = pytest.mark.cluster
EACH = int(os.environ.get("ENDINGS", "10"))
ROWS, PAGE = REPOSITORY / "build" / "endings.json", REPOSITORY / "docs" / "endings.md"
MOST_DELAY_MS = 100
AT_ONCE = 16  # what a node has room for


@pytest.fixture(scope="module")
def bed(request: pytest.FixtureRequest) -> Iterator[Bed]:
    if not request.config.getoption("--scenarios"):
        pytest.skip("long: run `make scenarios`")
    with open_bed(f"ends{os.getpid() % 10000}") as opened:
        yield opened


def pairs(bed: Bed, way: Way) -> tuple[list[Ending], list[Ending]]:
    """One after the other; those that wait for Slurm's clock all at once."""
    if way.waits_s <= 60:
        both = [(end_once(bed, way, True), end_once(bed, way, False)) for _ in range(EACH)]
        return [watched for watched, _ in both], [bare for _, bare in both]
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(lambda watched: end_once(bed, way, watched), [True] * EACH + [False] * EACH))
    return found[:EACH], found[EACH:]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_endings(bed: Bed, way: Way) -> None:
    watched, bare = pairs(bed, way)
    row = summarise(way, watched, bare, bed.bad_nodes())
    write_page(PAGE, keep(ROWS, row), bed.sandbox.state.release)
    print(row)
    assert row.codes == row.codes_without
    assert row.bad_nodes == []
    assert row.delay_ms is None or row.delay_ms <= MOST_DELAY_MS
