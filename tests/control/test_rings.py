"""Rings of processes with a root or a /dev/shm of their own are found from outside, and none through a link."""

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from greyhound.control.rings import RARE_SEARCH_S, RingFile, RingSearch
from greyhound.control.watch import RankWatch, own_mode
from tests.control.helpers import wait_for

ROOT = Path(__file__).resolve().parents[2]
RANK = shlex.join([sys.executable, str(Path(__file__).with_name("ring_program.py")), "100000", "0.01"])
SHM = "mount -t tmpfs tmpfs /dev/shm"
MAKE = "mkdir -m 700 $GREYHOUND_DIR"

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="makes mount namespaces")


@pytest.fixture
def step_dir() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix=f"greyhound-{os.getuid()}-rings-", dir="/dev/shm"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def start(step_dir: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start a shell script in a mount namespace of its own, as a process of the step."""
    running: list[subprocess.Popen[bytes]] = []

    def begin(script: str, *flags: str) -> subprocess.Popen[bytes]:
        command = ["unshare", "-m", *flags, "sh", "-ec", script]
        environment = {**os.environ, "GREYHOUND_DIR": str(step_dir), "PYTHONPATH": str(ROOT)}
        running.append(subprocess.Popen(command, env=environment, start_new_session=True))
        return running[-1]

    yield begin
    for process in running:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture
def search(step_dir: Path) -> Iterator[RingSearch]:
    found = RingSearch(step_dir)
    yield found
    found.close()


def look(search: RingSearch) -> list[RingFile]:
    """Search now, however lately it was done before."""
    look.now_s += RARE_SEARCH_S  # type: ignore[attr-defined]
    return search.find(look.now_s)  # type: ignore[attr-defined]


look.now_s = 0.0  # type: ignore[attr-defined]


def watched(search: RingSearch) -> RankWatch:
    """The one ring, once it is whole."""
    wait_for("a ring", lambda: look(search))
    (found,) = look(search)
    wait_for("its header", lambda: found.path.read_bytes()[:8].strip(b"\0"))
    watch = RankWatch(found, own_mode("on"), 0.1, 10)
    found.settle()
    return watch


def test_a_ring_in_a_dev_shm_of_its_own_is_read_and_its_name_removed(start, search):
    process = start(f"{SHM}; {MAKE}; exec {RANK}")
    watch = watched(search)
    assert watch.key.startswith(f"ring.{process.pid}.")
    wait_for("iterations", lambda: watch.poll() == [] and watch.sample().iteration > 3)
    assert watch.check_alive()
    assert look(search) == []
    assert list(Path(f"/proc/{process.pid}/root/dev/shm").glob("*/ring.*")) == []
    process.kill()
    process.wait()
    watch.check_alive()
    assert not watch.check_alive()
    watch.close()


def test_a_process_of_another_pid_namespace_is_known_by_its_number_here(start, search):
    start(f"{SHM}; {MAKE}; exec {RANK}", "-pf", "--mount-proc")
    wait_for("a ring", lambda: look(search))
    (found,) = look(search)
    assert found.path.name.startswith("ring.1.")
    assert found.pid and found.pid != 1
    watch = watched(search)
    wait_for("iterations", lambda: watch.poll() == [] and watch.sample().iteration > 3)
    os.kill(found.pid, signal.SIGKILL)
    time.sleep(0.1)
    watch.check_alive()
    assert not watch.check_alive()
    watch.close()


def test_two_containers_with_the_same_numbers_are_two(start, search):
    for _ in range(2):
        start(f"{SHM}; {MAKE}; touch $GREYHOUND_DIR/ring.1.7; exec sleep 60")
    wait_for("both rings", lambda: len(look(search)) == 2)
    assert len({found.key for found in look(search)}) == 2


def test_a_folder_goes_with_its_last_process_or_with_the_search(start, search, step_dir, tmp_path):
    (tmp_path / "shm").mkdir()
    mine = tmp_path / "shm" / step_dir.name
    for end in ("process", "search"):
        process = start(f"mount --bind {tmp_path}/shm /dev/shm; {MAKE}; touch $GREYHOUND_DIR/ring.1.7; exec sleep 60")
        wait_for("a ring", lambda: look(search))
        assert (mine / "ring.1.7").exists()
        if end == "process":
            process.kill()
            process.wait()
            assert look(search) == []
        else:
            search.close()
        assert not mine.exists()


def test_the_step_s_own_folder_seen_from_another_namespace_counts_once(start, search, step_dir):
    (step_dir / "ring.1.7").touch()
    start("mount -t tmpfs tmpfs /tmp; echo > /tmp/ready; exec sleep 60")
    time.sleep(0.3)
    assert [(found.key, found.is_elsewhere) for found in look(search)] == [("ring.1.7", False)]
    search.close()
    assert step_dir.exists()


@pytest.mark.parametrize("link", ["the folder", "on the way", "another user's"])
def test_what_is_no_folder_of_ours_is_left_alone(start, search, step_dir, tmp_path, link):
    (tmp_path / step_dir.name).mkdir()
    (tmp_path / step_dir.name / "ring.1.7").touch()
    scripts = {
        "the folder": f"{SHM}; ln -s {tmp_path / step_dir.name} $GREYHOUND_DIR",
        "on the way": f"mount -t tmpfs tmpfs /dev; ln -s {tmp_path} /dev/shm",
        "another user's": f"{SHM}; {MAKE}; touch $GREYHOUND_DIR/ring.1.7; chown 65534 $GREYHOUND_DIR",
    }
    process = start(f"{scripts[link]}; exec sleep 60")
    seen = Path(f"/proc/{process.pid}/root{step_dir}/ring.1.7")
    wait_for("the script", lambda: Path(f"/proc/{process.pid}/comm").read_text() == "sleep\n")
    assert seen.exists() or link != "another user's"
    assert look(search) == []
    assert (tmp_path / step_dir.name / "ring.1.7").exists()


def test_a_process_of_another_step_is_not_ours(start, search, step_dir):
    start(f"{SHM}; mkdir -m 700 $GREYHOUND_DIR; touch $GREYHOUND_DIR/ring.1.7; GREYHOUND_DIR=/dev/shm/x exec sleep 60")
    time.sleep(0.3)
    assert look(search) == []
