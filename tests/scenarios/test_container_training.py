"""A training whose tasks have a /dev/shm of their own each: found from outside, and its slow GPU too."""

import os
import shlex
import sys
from pathlib import Path

import pytest

from greyhound.sandbox import truth
from greyhound.sandbox.cluster import Sandbox
from greyhound.sandbox.watched import START_TIMEOUT_S, WatchedJob
from tests.e2e.training import free_port

pytestmark = [
    pytest.mark.scenario,
    pytest.mark.cluster,
    pytest.mark.training,
    pytest.mark.skipif(os.getuid() != 0, reason="makes mount namespaces"),
]
HEALTHY, SLOW = 22, 14
# The page of the stand-in lies in /dev/shm: it is shown elsewhere before that is hidden.
SCRIPT = """#!/bin/bash
export MASTER_ADDR=127.0.0.1 MASTER_PORT={port} OMP_NUM_THREADS=1
srun -N2 --ntasks-per-node=1 --greyhound=observe unshare -m {pids} sh -ec '
    mount --bind "$GREYHOUND_STANDIN_PAGE" {page}
    mount -t tmpfs tmpfs /dev/shm
    export GREYHOUND_STANDIN_PAGE={page}
    exec {train}'
"""


def submit(job: WatchedJob, pids: str) -> None:
    page = job.work / "page"
    page.touch()
    train = [sys.executable, "-m", "greyhound.sandbox.train", "--tp", "2", "--steps", "2000"]
    words = shlex.join([*train, "--json-log", str(job.training_log)])
    script = job.work / "script.sh"
    script.write_text(SCRIPT.format(port=free_port(), page=page, train=words, pids=pids))
    job.job = job.sandbox.submit("-N2", "--gpus-per-node=1", f"--output={job.output}", str(script))


def healthy(job: WatchedJob) -> bool:
    status = job.status()
    return status.get("tracked") == 2 and bool(status.get("healthy_s"))


@pytest.mark.parametrize("pids", ["", "-pf --mount-proc"], ids=["mounts", "mounts and process numbers"])
def test_a_slow_gpu_below_a_dev_shm_of_its_own(sandbox: Sandbox, tmp_path: Path, pids: str) -> None:
    job = WatchedJob(sandbox, steps=2000, work=tmp_path)
    submit(job, pids)
    job.wait_for("both ranks to be tracked", lambda: healthy(job), START_TIMEOUT_S)
    job.wait_iterations(HEALTHY)
    start_s = job.inject("gpu", "n2:0", "--speed", "0.5")
    try:
        job.wait_for("the fail-slow to be reported", lambda: bool(job.events("suspect")))
        job.wait_iterations(SLOW)
    finally:
        end_s = job.inject("heal")
    job.wait_for("the recovery to be reported", lambda: bool(job.events("recovered")))
    (opened,), (closed,) = job.events("suspect"), job.events("recovered")
    result = truth.compare(job.training(), truth.Injection(start_s, end_s), opened, closed)
    assert 0 <= result.delay <= 10
    assert result.slowdown_error <= 0.15
    sandbox.run(["scancel", str(job.job)])
    sandbox.wait(job.job)
    assert not [job.events(kind) for kind in ("regime", "unmonitored") if job.events(kind)]
