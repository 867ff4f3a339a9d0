"""The libraries under AddressSanitizer with UBSan, and under ThreadSanitizer."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DRIVER = Path(__file__).resolve().parent / "native" / "driver.c"
FLAGS = {"plain": [], "asan": ["-fsanitize=address,undefined"], "tsan": ["-fsanitize=thread"]}
ENVIRONMENT = {"ASAN_OPTIONS": "detect_leaks=1", "TSAN_OPTIONS": "halt_on_error=1", "UBSAN_OPTIONS": "halt_on_error=1"}


def build(kind: str, folder: Path) -> Path:
    """The driver, linked with the libraries built the same way."""
    libraries = ROOT / "greyhound" / "_native" / "standin"
    if kind != "plain":
        libraries = ROOT / "build" / f"standin-{kind}"
        subprocess.run(["make", "-s", "-C", ROOT / "hook" / "standin", kind], check=True)
    driver = folder / "driver"
    include = ROOT / "hook" / "standin" / "include"
    command = ["cc", "-g", "-O1", "-Wall", "-Wextra", "-Werror", *FLAGS[kind], f"-I{include}", "-o", driver, DRIVER]
    links = [f"-L{libraries}", f"-Wl,-rpath,{libraries}", "-lnccl", "-lcudart", "-pthread"]
    subprocess.run([*command, *links], check=True)
    return driver


@pytest.mark.parametrize("kind", ["plain", *[pytest.param(k, marks=pytest.mark.sanitizer) for k in ("asan", "tsan")]])
def test_four_ranks_in_threads_of_one_process(kind: str, tmp_path: Path) -> None:
    driver = build(kind, tmp_path)
    done = subprocess.run([driver], env=os.environ | ENVIRONMENT, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr[-6000:]
