"""A thousand kills of our processes at random moments (make scenarios); `--kills N` for fewer."""

import os
from collections.abc import Iterator

import pytest

from tests.endings.bed import Bed, open_bed
from tests.endings.killer import OURS, campaign

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def bed(request: pytest.FixtureRequest) -> Iterator[Bed]:
    if not request.config.getoption("--scenarios"):
        pytest.skip("long: run `make scenarios`")
    with open_bed(f"kills{os.getpid() % 10000}") as opened:
        yield opened


def test_many_kills_at_random_moments_change_nothing(bed: Bed, request: pytest.FixtureRequest) -> None:
    kills = request.config.getoption("--kills")
    killed, steps = campaign(bed, kills, at_once=3, seed=request.config.getoption("--kills-seed"))
    print(f"{killed.total()} kills in {steps} steps: {dict(killed)}")
    assert set(killed) == set(OURS)
