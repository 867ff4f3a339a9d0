"""The step directory: made where it is missing (a container with its own /dev/shm); refused unless ours alone."""

from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path

import pytest

from tests.hook.conftest import UNMONITORED, Runner, Stepwise, may_mount

NEITHER = "that is neither sticky nor this user's alone"


def missing(runner: Runner, name: str = "made") -> Path:
    return runner.step / name


@pytest.mark.parametrize("mode", [0o700, 0o1777, 0o2700])
def test_a_missing_one_is_made_and_goes_with_its_process(runner: Runner, mode: int) -> None:
    runner.step.chmod(mode)
    made = missing(runner)
    process = Stepwise(Runner(runner.built, made))
    assert made.stat().st_mode & 0o5777 == 0o700 and process.ring.path.stat().st_mode & 0o7777 == 0o600
    process.call()
    process.end()
    assert list(runner.step.iterdir()) == [] and process.ring.ops() == ["comm_init", "all_reduce"]


def test_only_its_own_is_removed(runner: Runner) -> None:
    made, elsewhere = missing(runner), missing(runner, "elsewhere")
    first = Stepwise(Runner(runner.built, made))
    made.rename(elsewhere)
    second = Stepwise(Runner(runner.built, made))
    first.end()
    assert [path.name for path in elsewhere.iterdir()] == [first.ring.path.name]
    assert [path.name for path in made.iterdir()] == [second.ring.path.name]
    second.end()
    assert not made.exists()


def test_many_ranks_make_it_at_once(runner: Runner) -> None:
    """And take it away again under each other's feet: nobody runs unmonitored for that."""
    made = missing(runner)
    for _ in range(6):
        environment = runner.variables(GREYHOUND_DIR=f"{made}/", CALLS="1")
        command = [str(runner.built.program), "one_call"]
        ranks = [subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) for _ in range(12)]
        assert [(rank.communicate(timeout=60)[1], rank.returncode) for rank in ranks] == [("", 0)] * 12
        assert not made.exists()


def test_one_that_somebody_keeps_is_left_to_him(runner: Runner) -> None:
    made = missing(runner)
    process = Stepwise(Runner(runner.built, made))
    descriptor = os.open(made, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    process.call()
    process.end()
    os.close(descriptor)
    assert [path.name for path in made.iterdir()] == [process.ring.path.name]


def test_foreign_files_in_it_stay(runner: Runner) -> None:
    made = missing(runner)
    process = Stepwise(Runner(runner.built, made))
    (made / "note").write_text("mine")
    process.call()
    process.end()
    assert [path.name for path in made.iterdir()] == ["note"]


def test_a_missing_parent(runner: Runner) -> None:
    path = runner.step / "none" / "made"
    reason = runner.unmonitored(GREYHOUND_DIR=str(path))
    assert reason == f"no step directory {path} here, and none can be made in {path.parent}: No such file or directory"


@pytest.mark.parametrize("mode", [0o777, 0o720])
def test_a_parent_that_others_write(runner: Runner, mode: int) -> None:
    runner.step.chmod(mode)
    assert runner.unmonitored(GREYHOUND_DIR=str(missing(runner))).endswith(f"in {runner.step}: {NEITHER}")
    assert runner.rings() == []


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to give a directory away")
def test_a_parent_of_another_user(runner: Runner) -> None:
    os.chown(runner.step, 12345, 12345)
    assert runner.unmonitored(GREYHOUND_DIR=str(missing(runner))).endswith(NEITHER)


def test_a_dangling_link_in_its_place(runner: Runner, tmp_path: Path) -> None:
    missing(runner).symlink_to(tmp_path / "elsewhere")
    assert runner.unmonitored(GREYHOUND_DIR=str(missing(runner))).startswith("not a directory of its own: ")
    assert not (tmp_path / "elsewhere").exists()


def test_private_shared_memory(runner: Runner) -> None:
    """As in a container: the ring is where the reader looks, through /proc/PID/root, and nothing stays behind."""
    if not may_mount():
        pytest.skip("may not mount here")
    script = 'mount -t tmpfs -o mode=1777 none /dev/shm || exit 77; "$PROGRAM" stepwise; ls -A /dev/shm'
    environment = runner.variables(PROGRAM=str(runner.built.program))
    command = ["unshare", "-m", "sh", "-c", script]
    with subprocess.Popen(command, env=environment, text=True, bufsize=1, stdin=-1, stdout=-1, stderr=-1) as process:
        assert process.stdout and process.stdout.readline() == "ready\n"
        step = Path(f"/proc/{process.pid}/root{runner.step}")
        (ring,) = Runner(runner.built, step).rings()
        assert ring.ops() == ["comm_init"] and step.stat().st_mode & 0o7777 == 0o700
        assert process.communicate("go\n", timeout=60) == ("called\n", "")
    assert runner.rings() == [] and ring.ops() == ["comm_init", "all_reduce"]


def test_every_rank_of_a_full_private_shared_memory_says_it_once(runner: Runner) -> None:
    if not may_mount():
        pytest.skip("may not mount here")
    script = (
        "mount -t tmpfs -o size=1m,mode=1777 none /dev/shm || exit 77; "
        'for rank in 1 2; do "$PROGRAM" many || exit; done; ls -A "$GREYHOUND_DIR"'
    )
    done = runner.run("unshare", "-m", "sh", "-c", script, PROGRAM=str(runner.built.program), COMMS="20")
    assert (done.returncode, done.stdout) == (0, "")
    lines = done.stderr.splitlines()
    assert len(lines) == 2 and all(line.startswith(UNMONITORED + "no memory for ring.") for line in lines)


def test_symbolic_link(runner: Runner, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(runner.step)
    assert runner.unmonitored(GREYHOUND_DIR=str(link)).startswith(f"not a directory of its own: {link}")
    assert runner.rings() == []


def test_directory_open_to_others(runner: Runner) -> None:
    runner.step.chmod(0o755)
    reason = runner.unmonitored()
    assert reason.endswith("with mode 0700; it is uid 0, mode 0755".replace("uid 0", f"uid {os.getuid()}"))


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to give a directory away")
def test_directory_of_another_user(runner: Runner) -> None:
    os.chown(runner.step, 12345, 12345)
    assert "it is uid 12345, mode 0700" in runner.unmonitored()
