"""Fixtures that several rooms share: one sandbox for all tests that need daemons, and the built C parts."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from greyhound.sandbox import leftovers
from greyhound.sandbox.cluster import Sandbox

REPOSITORY = Path(__file__).resolve().parents[1]
NATIVE = REPOSITORY / "greyhound" / "_native"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--scenarios", action="store_true", help="run the long matrices, the tests marked `scenario`, too")
    parser.addoption("--kills", type=int, default=1000, help="how many of our processes tests/scenarios kill")
    parser.addoption("--kills-s", type=float, default=1800, help="no longer than so many seconds for each training")
    parser.addoption("--kills-seed", type=int, default=1, help="another seed: other moments")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What is marked `scenario` runs with --scenarios only."""
    if not config.getoption("--scenarios"):
        for item in items:
            if item.get_closest_marker("scenario"):
                item.add_marker(pytest.mark.skip(reason="long: run `make scenarios`"))


@pytest.fixture(scope="session")
def native() -> Path:
    """The folder of the built C parts."""
    assert (NATIVE / "libgreyhound_hook.so").exists(), "run `make install` first"
    return NATIVE


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    """One private Slurm cluster for the whole session; nothing may be left of it afterwards."""
    cluster = Sandbox.up(f"test-{os.getpid()}")
    try:
        yield cluster
    finally:
        cluster.down()
    left = list(leftovers.describe(cluster))
    assert not left, left
