"""The torch backend is built, for the Python that runs the tests, before any of them."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytest.importorskip("torch")


@pytest.fixture(scope="session", autouse=True)
def torch_backend_built() -> None:
    made = subprocess.run(
        ["make", "-C", str(ROOT / "hook" / "standin"), "torch_backend", f"PYTHON={sys.executable}"],
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stdout + made.stderr
