"""CPU quotas: the names of limited cgroups, a made-up tree of cgroup v2, and the kernel's own where it lets us."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from greyhound.sandbox import cpu_quota
from greyhound.sandbox.cpu_quota import Controller, cgroup_of, find_controller, limited, origin
from greyhound.sandbox.errors import SandboxError

MARK = f"test-{os.getpid()}.n1"
BUSY = "import time\nend = time.monotonic() + 1.5\nwhile time.monotonic() < end: pass"


def kernel_allows() -> bool:
    try:
        return find_controller().v1
    except SandboxError:
        return False


def test_the_neighbour_of_a_cgroup_leads_back_to_it():
    root = Path("/x/cpu")
    for folder in (root, root / "slurm", root / "slurm" / "step.0"):
        neighbour = limited(folder, MARK, root)
        assert neighbour != folder
        assert limited(neighbour, MARK, root) == neighbour
        assert origin(neighbour) == folder


def test_which_controller(tmp_path):
    with pytest.raises(SandboxError, match="no cpu controller"):
        find_controller(tmp_path)
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io\n")
    assert find_controller(tmp_path) == Controller(tmp_path, v1=False)
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cgroup.procs").write_text("")
    assert find_controller(tmp_path) == Controller(tmp_path / "cpu", v1=True)


def test_the_cgroup_of_a_process(tmp_path):
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text("4:memory:/m\n1:cpu,cpuacct:/slurm/job:7\n0::/user.slice\n")
    assert cgroup_of(7, Controller(tmp_path, v1=True), tmp_path) == "/slurm/job:7"
    assert cgroup_of(7, Controller(tmp_path, v1=False), tmp_path) == "/user.slice"


@pytest.mark.parametrize(("quota", "period_s"), [(0.0, 0.1), (float("nan"), 0.1), (0.1, 5.0), (0.1, 0.0)])
def test_bad_quotas(quota, period_s):
    with pytest.raises(SandboxError, match="quota"):
        cpu_quota.limit([], MARK, quota, period_s)


@pytest.mark.skipif(not kernel_allows(), reason="no writable cpu controller of cgroup v1")
def test_the_kernel_throttles_and_lets_go():
    with subprocess.Popen([sys.executable, "-c", BUSY]) as process:
        before = cgroup_of(process.pid, find_controller())
        try:
            assert cpu_quota.limit([process.pid, 2**22 + 1], MARK, 0.05) == 1
            assert cpu_quota.limit([process.pid], MARK, 0.1) == 1, "another quota for the same process"
            assert process.wait(60) == 0
            stopped = cpu_quota.throttled(MARK)
            assert stopped.periods > 0
            assert stopped.seconds > 0
        finally:
            assert cpu_quota.lift(MARK) == 1
    assert before == "/" or MARK not in before
    assert cpu_quota.lift("test-*") == 0
