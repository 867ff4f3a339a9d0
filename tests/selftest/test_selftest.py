"""The self-test itself on the stand-in: the script for GPU machines, and the job that `greyhound selftest` hands in."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from greyhound.sandbox.cluster import Sandbox

REPOSITORY = Path(__file__).resolve().parents[2]
TIMEOUT_S = 240

pytestmark = pytest.mark.training


@pytest.mark.scenario
def test_the_gpu_script_passes_on_the_standin(native: Path) -> None:
    environment = {**os.environ, "GREYHOUND_STANDIN": "1", "PAIRS": "3"}
    done = subprocess.run(
        [str(REPOSITORY / "tests" / "gpu" / "check.sh"), sys.executable],
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert done.stdout.count("ok   ") == 8
    assert not list(Path("/dev/shm").glob("greyhound-gpu-check.*"))


def test_the_gpu_script_checks_nothing_without_a_gpu() -> None:
    done = subprocess.run(
        [str(REPOSITORY / "tests" / "gpu" / "check.sh"), sys.executable],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 2
    assert "nothing was checked" in done.stderr


@pytest.mark.cluster
def test_greyhound_selftest_writes_a_certificate(sandbox: Sandbox, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "greyhound", "selftest", "--python", sys.executable, "--pairs", "3"]
    folders = ["--folder", str(tmp_path / "run"), "--certificates", str(tmp_path / "certificates")]
    done = subprocess.run(
        [*command, *folders], env=sandbox.env(), capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = (tmp_path / "certificates").iterdir()
    assert json.loads(path.read_text())["ranks"] == 2


@pytest.mark.cluster
def test_a_refused_selftest_says_why(sandbox: Sandbox, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "greyhound", "selftest", "--folder", str(tmp_path), "--sbatch=--partition=nowhere"]
    done = subprocess.run(command, env=sandbox.env(), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "sbatch refused the self-test" in done.stderr and "partition" in done.stderr
