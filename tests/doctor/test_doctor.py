"""The command on a real cluster, and where there is no Slurm."""

import json
import subprocess
import sys

import pytest

from greyhound.sandbox.cluster import Sandbox

COMMAND = [sys.executable, "-m", "greyhound", "doctor", "--json"]


def doctor(environment, *options):
    done = subprocess.run(
        [*COMMAND, *options], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, json.loads(done.stdout)


@pytest.mark.cluster
def test_all_is_well_in_the_sandbox(sandbox: Sandbox) -> None:
    code, found = doctor(sandbox.env())
    assert (code, found["level"]) == (0, "ok"), found
    names = {finding["name"] for finding in found["findings"]}
    assert {"slurmctld", "plugin release", "srun option", "clock", "sacct", "hook", "redis-server"} <= names


def test_without_slurm_only_the_host_is_looked_at(tmp_path):
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    code, found = doctor(environment, "--no-slurm")
    assert "slurmctld" not in {finding["name"] for finding in found["findings"]}
    assert code in (0, 1)


def test_an_unreachable_slurm_is_critical_and_the_host_is_checked_all_the_same(tmp_path):
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "SLURM_CONF": str(tmp_path / "none")}
    code, found = doctor(environment)
    assert code == 2
    assert {"slurmctld", "hook"} <= {finding["name"] for finding in found["findings"]}
