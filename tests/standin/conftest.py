"""Builds the stand-in once before its tests."""

import fcntl
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def pytest_configure() -> None:
    """Before collection: the test modules load the libraries when they are imported."""
    with open(ROOT / "hook" / "standin" / "Makefile") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(
            ["make", "-s", "-C", ROOT / "hook" / "standin"], capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr
