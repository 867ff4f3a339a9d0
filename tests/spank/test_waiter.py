"""The waiter without Slurm: it waits for a ring, becomes the node process, or tidies up and ends."""

import fcntl
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.spank.rig import STOP, until

pytestmark = pytest.mark.sanitizer

PROGRAM = """#!/bin/sh
{ for word in "$@"; do echo "$word"; done; env; } > @OUT@.new; mv @OUT@.new @OUT@; echo said; echo complained >&2
exec sleep 60
"""


@pytest.fixture
def start(waiter: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start the waiter on a command with an environment of one variable."""
    running = []

    def begin(step_dir: Path, *command: str) -> subprocess.Popen[bytes]:
        environment = {"ONLY": "this", "ASAN_OPTIONS": "exitcode=66"}
        running.append(subprocess.Popen([waiter, step_dir, "--", *command], env=environment, stderr=subprocess.PIPE))
        return running[-1]

    yield begin
    for process in running:
        process.kill()
        process.communicate()


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program"
    path.write_text(PROGRAM.replace("@OUT@", str(tmp_path / "out")))
    path.chmod(0o755)
    return path


def ready(process: subprocess.Popen[bytes]) -> None:
    """Until the waiter has blocked our signal: before that it ends it like any program."""
    status = Path(f"/proc/{process.pid}/status")

    def blocked() -> bool:
        fields = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
        return bool(int(fields["SigBlk"], 16) >> (STOP - 1) & 1)

    until(blocked, "the waiter blocks our signal")


def finish(process: subprocess.Popen[bytes]) -> int:
    process.send_signal(STOP)
    _, errors = process.communicate(timeout=10)
    assert errors == b""
    return process.returncode


def test_a_ring_starts_the_program_with_its_words_and_the_same_environment(start, step_dir, program, tmp_path):
    process = start(step_dir, str(program), "-I", "two words", "")
    ready(process)
    assert not (tmp_path / "out").exists()
    (step_dir / "ring.1.2").touch()
    until((tmp_path / "out").exists, "the program was started")
    lines = (tmp_path / "out").read_text().splitlines()
    assert lines[:3] == ["-I", "two words", ""]
    assert "ONLY=this" in lines
    assert Path(f"/proc/{process.pid}/comm").read_text().strip() in ("program", "sh", "sleep")
    until(lambda: (step_dir / "node.log").read_text() == "said\ncomplained\n", "its output is in node.log")
    assert (step_dir / "node.log").stat().st_mode & 0o777 == 0o600


def test_a_ring_that_is_there_already_or_is_renamed_into_place_counts(start, step_dir, program, tmp_path):
    (step_dir / "ring.1.2").touch()
    start(step_dir, str(program))
    until((tmp_path / "out").exists, "the program was started")


def test_a_renamed_ring_counts(start, step_dir, program, tmp_path):
    ready(start(step_dir, str(program)))
    (step_dir / "new").touch()
    (step_dir / "new").rename(step_dir / "ring.1.2")
    until((tmp_path / "out").exists, "the program was started")


def test_other_files_start_nothing_and_a_stop_removes_all(start, step_dir, program, tmp_path):
    process = start(step_dir, str(program))
    ready(process)
    (step_dir / "status.json").touch()
    (step_dir / "my.ring.1").touch()
    assert finish(process) == 0
    assert not (tmp_path / "out").exists()
    assert not step_dir.exists()


def test_signals_that_a_whole_step_gets_change_nothing(start, step_dir, program):
    process = start(step_dir, str(program))
    ready(process)
    for name in ("HUP", "INT", "QUIT", "TERM", "USR1", "USR2", "ALRM", "XCPU"):
        process.send_signal(getattr(signal, f"SIG{name}"))
    time.sleep(0.05)
    assert process.poll() is None
    assert finish(process) == 0


def test_a_missing_program_is_noted_and_the_waiter_stays(start, step_dir):
    process = start(step_dir, "/nowhere/python", "-I")
    ready(process)
    (step_dir / "ring.1.2").touch()
    note = step_dir / "unmonitored"
    until(lambda: note.exists() and note.read_text(), "the note was written")
    assert note.read_text() == "cannot run /nowhere/python: No such file or directory\n"
    (step_dir / "ring.1.3").touch()
    time.sleep(0.05)
    assert process.poll() is None
    assert finish(process) == 0
    assert not step_dir.exists()


def test_a_program_that_is_not_executable_is_noted(start, step_dir, tmp_path):
    (tmp_path / "plain").write_text("text")
    (step_dir / "ring.1.2").touch()
    start(step_dir, str(tmp_path / "plain"))
    note = step_dir / "unmonitored"
    until(lambda: note.exists() and note.read_text(), "the note was written")
    assert "Permission denied" in note.read_text()


def test_what_a_killed_step_left_is_swept_by_the_next_and_nothing_else(start, step_dir, program):
    shm = step_dir.parent
    job = os.getpid()
    names = {"dead": "0.0.n0", "locked": "1.0.n0", "young": "2.0.n0", "strange": "3.0.n0"}
    places = {what: shm / f"greyhound-{os.getuid()}-{job}.{name}" for what, name in names.items()}
    launch = places["launch"] = shm / f"greyhound-{os.getuid()}-local-{job}.0.0.n0"
    try:
        for path in places.values():
            path.mkdir(0o700)
            (path / "ring.1.1").touch()
            os.utime(path, (0, 0))
        os.utime(places["young"])
        if os.getuid() == 0:
            os.chown(places["strange"], 65534, 65534)
        lock = os.open(places["locked"], os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = start(step_dir, str(program))
        ready(process)
        until(lambda: not places["dead"].exists(), "the dead step's directory is gone")
        kept = {"locked", "young"} | ({"strange"} if os.getuid() == 0 else set())
        assert {what for what in kept if (places[what] / "ring.1.1").exists()} == kept
        assert (launch / "ring.1.1").exists()
        os.close(lock)
        assert finish(process) == 0
    finally:
        for path in places.values():
            shutil.rmtree(path, ignore_errors=True)


def test_waiting_wakes_almost_never(start, step_dir, program):
    process = start(step_dir, str(program))
    ready(process)
    time.sleep(0.5)
    switches = Path(f"/proc/{process.pid}/status").read_text().split("voluntary_ctxt_switches:")[1].split()[0]
    assert int(switches) < 20


@pytest.mark.parametrize("words", [[], ["dir"], ["dir", "--"], ["dir", "python", "x"]])
def test_a_wrong_command_line_is_explained(waiter, words):
    done = subprocess.run([waiter, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: greyhound_waiter STEPDIR -- PROGRAM")


def test_remove_takes_its_own_directory_and_follows_no_link(waiter, step_dir, tmp_path):
    (tmp_path / "precious").touch()
    (step_dir / "link").symlink_to(tmp_path)
    subprocess.run([waiter, "--remove", step_dir], check=True)
    assert not step_dir.exists()
    step_dir.symlink_to(tmp_path)
    assert subprocess.run([waiter, "--remove", step_dir], check=False).returncode == 1
    step_dir.unlink()
    assert (tmp_path / "precious").exists()
