"""The main job with real daemons: what `make demo` shows, checked in the same way."""

from pathlib import Path

import pytest

from greyhound.sandbox import demo
from greyhound.sandbox.cluster import Sandbox
from greyhound.sandbox.watched import WatchedJob

pytestmark = [pytest.mark.cluster, pytest.mark.training]


def test_an_injected_fail_slow_is_found_and_its_recovery_too(sandbox: Sandbox, tmp_path: Path) -> None:
    job = WatchedJob(sandbox, steps=62, work=tmp_path)
    # An innocent is never named; abstaining is allowed where other work on the machine blurs the profile.
    assert set(demo.play(job, gpu="n3:0", speed=0.6)) <= {demo.NOBODY}
    healthy = [row.time_s for row in job.training()[5:25]]
    end = job.events("end")[0]["data"]
    assert isinstance(end, dict)
    # The machine itself may get slower on the way, and the healthy time follows it slowly.
    assert min(healthy) <= end["healthy_s"] <= 1.1 * max(healthy)
