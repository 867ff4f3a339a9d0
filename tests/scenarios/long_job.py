"""The long training of eight ranks that several scenarios play on."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from greyhound.sandbox.cluster import Sandbox
from greyhound.sandbox.watched import START_TIMEOUT_S, WatchedJob


@contextlib.contextmanager
def tracked_job(request: pytest.FixtureRequest) -> Iterator[WatchedJob]:
    """A job whose ranks are all tracked, cancelled at the end."""
    sandbox: Sandbox = request.getfixturevalue("sandbox")
    with tempfile.TemporaryDirectory() as work:
        job = WatchedJob(sandbox, steps=2000, work=Path(work))
        job.submit()
        job.wait_for("all ranks to be tracked and their healthy time known", job.healthy, START_TIMEOUT_S)
        yield job
        sandbox.run(["scancel", str(job.job)])
        sandbox.wait(job.job)
