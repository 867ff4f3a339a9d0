"""The waiter starts the node process too where the step uses NCCL past the hook: no ring will ever appear."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.spank.conftest import SANITIZERS
from tests.spank.rig import make, until

pytestmark = pytest.mark.sanitizer

PATIENCE_MS = 200
# Maps a file of the name given and names its only thread.
RANK = """
import ctypes, mmap, sys, time
with open(sys.argv[1], "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
ctypes.CDLL(None).prctl(15, sys.argv[2].encode(), 0, 0, 0)
print("ready", flush=True)
time.sleep(60)
"""


@pytest.fixture(scope="module")
def hasty_waiter(folder: Path) -> Path:
    """The waiter with a patience of less than a second."""
    out = folder / "hasty"
    hurry = [f"-DBYPASS_SCAN_MS={PATIENCE_MS // 4}", f"-DBYPASS_PATIENCE_MS={PATIENCE_MS}"]
    make("waiter", f"OUT={out}", f"CFLAGS={' '.join([*SANITIZERS, *hurry])}")
    return out / "greyhound_waiter"


@pytest.fixture
def running() -> Iterator[list[subprocess.Popen[bytes]]]:
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


@pytest.fixture
def rank(running, tmp_path) -> Callable[..., None]:
    """Start a process of a step that uses a library and has a thread of these names."""

    def begin(step_dir: Path, library: str = "libnccl.so.2", thread: str = "NCCL Service 0", padding: int = 0) -> None:
        (tmp_path / library).write_bytes(b"x" * 4096)
        environment = {"PADDING": "x" * padding, "GREYHOUND_DIR": str(step_dir), "LAST": "1"}
        argv = [sys.executable, "-I", "-c", RANK, tmp_path / library, thread]
        running.append(subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE))
        assert running[-1].stdout.readline() == b"ready\n"

    return begin


@pytest.fixture
def start(hasty_waiter, running, step_dir, tmp_path) -> Callable[[], Path]:
    """Start the waiter; the file that its program makes."""
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho started > {tmp_path}/out\nexec sleep 60\n")
    program.chmod(0o755)

    def begin() -> Path:
        environment = {"ASAN_OPTIONS": "exitcode=66"}
        running.append(subprocess.Popen([hasty_waiter, step_dir, "--", program], env=environment))
        return tmp_path / "out"

    return begin


# 16 KiB is what the waiter reads at once: the variable lies across that border.
@pytest.mark.parametrize("padding", [0, *range(16384 - 70, 16384 - 10, 6)])
def test_nccl_at_work_without_a_ring_starts_the_program(start, rank, step_dir, padding):
    rank(step_dir, padding=padding)
    out = start()
    until(out.exists, "the program was started")


@pytest.mark.parametrize("other", ["step", "library", "thread"])
def test_whatever_is_no_nccl_of_this_step_starts_nothing(start, rank, step_dir, running, other):
    if other == "step":
        rank(Path(f"{step_dir}1"))
        rank(Path(str(step_dir)[:-1]))
    elif other == "library":
        rank(step_dir, library="libc.so.6")
    else:
        rank(step_dir, thread="pt_main")
    out = start()
    time.sleep(4 * PATIENCE_MS / 1000)
    assert not out.exists()
    assert running[-1].poll() is None


def test_patience_begins_anew_where_nccl_went_away(start, rank, step_dir, running):
    out = start()
    for _ in range(4):
        rank(step_dir)
        time.sleep(PATIENCE_MS / 4000)
        running[-1].kill()
        running[-1].wait()
        time.sleep(PATIENCE_MS / 2000)
    assert not out.exists()
