"""One cluster for the room."""

import os
from collections.abc import Iterator

import pytest

from tests.endings.bed import Bed, open_bed


@pytest.fixture(scope="session")
def bed() -> Iterator[Bed]:
    if os.getuid() != 0:
        pytest.skip("mounts, cgroups and users need root")
    with open_bed(f"end{os.getpid() % 100000}") as opened:
        yield opened
