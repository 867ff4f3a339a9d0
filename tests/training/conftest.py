"""The torch backend is built, for the Python that runs the tests, before any of them."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Not imported here: other tests load the stand-in into this process, and a CUDA build of torch would find it there.
if importlib.util.find_spec("torch") is None:
    pytest.skip("torch isn't installed", allow_module_level=True)


@pytest.fixture(scope="session", autouse=True)
def torch_backend_built() -> None:
    made = subprocess.run(
        ["make", "-C", str(ROOT / "hook" / "standin"), "torch_backend", f"PYTHON={sys.executable}"],
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stdout + made.stderr
