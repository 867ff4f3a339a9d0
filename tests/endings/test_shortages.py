"""Something runs out or goes away under a watched step: the training notices nothing, and it is said once."""

import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from greyhound.control.status import read_status
from tests.conftest import REPOSITORY
from tests.endings.bed import Bed, Step, until
from tests.endings.small_shm import SIZE_MIB
from tests.endings.test_isolation import OWNER, as_user

pytestmark = pytest.mark.cluster
ITERATIONS = 150


def end(step: Step) -> str:
    """See that the step ended well and left nothing; what srun said."""
    assert step.wait() == 0, step.errors
    step.assert_nothing_left()
    return step.errors


LIMITS = ("--nofile=24", "--as=400000000", "--nproc=64", "--memlock=65536", "--stack=262144")


def with_limit(bed: Bed, limit: str) -> Step:
    """As an ordinary user: root passes over some of them."""
    prepared = f"prlimit --pid $$ {limit} || exit 77; "
    step = bed.srun(True, iterations=ITERATIONS, wrapper=prepared, prefix=as_user(OWNER), uid=OWNER)
    end(step)
    return step


def test_tasks_with_tight_limits_are_watched_or_left_alone(bed: Bed):
    expected = bed.srun(False, iterations=ITERATIONS)
    assert expected.wait() == 0
    with ThreadPoolExecutor(3) as pool:
        tried = {limit: pool.submit(with_limit, bed, limit) for limit in LIMITS}
    for limit, one in tried.items():
        assert one.result().losses() == expected.losses(), limit
        assert len(one.result().said()) <= one.result().ranks, limit


def test_a_record_folder_that_vanishes_is_said_once(bed: Bed):
    folder = Path(tempfile.mkdtemp(prefix="greyhound-test-"))
    step = bed.srun(True, option=f",record_dir={folder}")
    step.wait_for_ranks()
    shutil.rmtree(folder)
    folder.write_text("no folder any more")
    time.sleep(1)
    step.enough()
    end(step)
    assert folder.read_text() == "no folder any more"
    folder.unlink()


def test_a_record_folder_on_a_read_only_disk_is_replaced(bed: Bed):
    disk = Path(tempfile.mkdtemp(prefix="greyhound-disk-"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro,size=64k", "tmpfs", disk], check=True)
    try:
        step = bed.srun(True, option=f",record_dir={disk}/mine", prefix=as_user(OWNER), uid=OWNER)
        step.wait_for_ranks()
        notices = until(lambda: (read_status(step.node_dir(0) / "status.json") or {}).get("notices"), "a notice")
        assert [text for text in notices if "Read-only file system" in text]
        step.enough()
        end(step)
    finally:
        subprocess.run(["umount", disk], check=True)
        disk.rmdir()


def test_shared_memory_that_fills_up_in_mid_job_harms_nobody():
    """In a mount namespace with a /dev/shm of its own, which nobody else needs."""
    mount = f"mount -t tmpfs -o size={SIZE_MIB}m tmpfs /dev/shm"
    script = f"{mount} && exec {sys.executable} -m tests.endings.small_shm"
    command = ["unshare", "-m", "--propagation", "private", "/bin/sh", "-c", script]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "ok"
