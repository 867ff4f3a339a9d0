"""A long matrix: one cluster, one job, many injections one after the other (make scenarios).

Each injection must give exactly one episode, found in time, with the right slowdown and with its recovery.
"""

from collections.abc import Iterator

import pytest

from greyhound.sandbox import truth
from greyhound.sandbox.watched import WatchedJob
from tests.scenarios.long_job import tracked_job

pytestmark = [pytest.mark.scenario, pytest.mark.cluster, pytest.mark.training]
HEALTHY, SLOW = 22, 14
FAULTS = {
    "GPU at half speed": ["gpu", "n1:0", "--speed", "0.5"],
    "GPU at 0.67": ["gpu", "n2:1", "--speed", "0.67"],
    "GPU at 0.8": ["gpu", "n3:0", "--speed", "0.8"],
    "GPU of the last stage at 0.6": ["gpu", "n4:1", "--speed", "0.6"],
    "slow link inside a tensor-parallel pair": ["link", "n1:0", "n1:1", "--latency", "5ms"],
    "slow link between pipeline stages": ["link", "n1:0", "n3:0", "--latency", "30ms"],
}


@pytest.fixture(scope="module")
def job(request: pytest.FixtureRequest) -> Iterator[WatchedJob]:
    with tracked_job(request) as job:
        yield job


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_one_episode(job: WatchedJob, fault: str) -> None:
    job.wait_iterations(HEALTHY)
    before = len(job.events("suspect"))
    start_s = job.inject(*FAULTS[fault])
    try:
        job.wait_for("the fail-slow to be reported", lambda: len(job.events("suspect")) > before)
        job.wait_iterations(SLOW)
    finally:
        end_s = job.inject("heal")
    job.wait_for("the recovery to be reported", lambda: len(job.events("recovered")) > before)
    opened, closed = job.events("suspect"), job.events("recovered")
    assert len(opened) == len(closed) == before + 1
    result = truth.compare(job.training(), truth.Injection(start_s, end_s), opened[-1], closed[-1])
    print(f"{fault}: {result}")
    assert 0 <= result.delay <= 6
    assert result.slowdown_error <= 0.15


def test_nothing_else_was_reported(job: WatchedJob) -> None:
    job.wait_iterations(HEALTHY)
    assert len(job.events("suspect")) == len(job.events("recovered")) == len(FAULTS)
    assert not [job.events(kind) for kind in ("regime", "unmonitored") if job.events(kind)]
