"""Builds the stand-in where its sources are newer."""

import fcntl
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = ROOT / "greyhound" / "_native" / "standin"


def build_standin() -> Path:
    """The folder with the libraries."""
    with open(ROOT / "hook" / "standin" / "Makefile") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(
            ["make", "-s", "-C", ROOT / "hook" / "standin"], capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr
    return LIBRARIES
