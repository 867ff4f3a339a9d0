"""`greyhound launch` as a process: the whole path, exit codes, what dies beside the job, what is left behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from greyhound.config import Settings, native_dir
from greyhound.control import child, local, step_lock
from greyhound.control.events import read_events
from greyhound.control.local import preload, sweep_dead_launches
from greyhound.control.names import StepName, step_dir
from greyhound.control.status import read_status
from tests.control import helpers
from tests.control.helpers import child_with, environment, ring_program, step_dirs, wait_for, wait_for_status

pytestmark = pytest.mark.usefixtures("native")


@pytest.fixture
def launch():
    """`greyhound launch` as a process; one that a failing test leaves behind is ended and its stderr shown."""
    started = []

    def start(*arguments, **extra):
        started.append(helpers.launch(*arguments, **extra))
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            process.terminate()
            print(process.communicate(timeout=60)[1])


def record(home, process):
    return home / ".local/state/greyhound" / f"local-{process.pid}" / "0.0"


def test_slow_iterations_are_reported_to_the_end(launch, tmp_path):
    process = launch(tmp_path, "-n", 2, "--", *ring_program(200, 0.03, "--slow", 80, 140, 1.6))
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert sorted(out.split("\n")) == ["", "rank 0 done", "rank 1 done"]
    lines = err.splitlines()
    assert lines[0].startswith(f"greyhound: job local-{process.pid} (on)")
    events = list(read_events(record(tmp_path, process) / "events.jsonl"))
    suspects = [event for event in events if event["kind"] == "suspect"]
    found = [event for event in suspects if abs(event["data"]["onset"] - 80) <= 5]
    # A busy machine, at 30 ms an iteration, may break it into two, and make it worse.
    assert found, events
    assert found[0]["data"]["slowdown"] > 1.3
    over = [event["data"]["end"] for event in events if event["kind"] == "recovered"]
    assert any(abs(end - 140) <= 5 for end in over), events
    assert any(f"fail-slow {found[0]['episode']} at iteration" in line for line in lines)
    assert any("ended after 199 iterations" in line for line in lines), "\n".join(lines)
    assert read_status(record(tmp_path, process) / "status.json")["state"] == "ended"
    assert step_dirs(process.pid) == []


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["sh", "-c", "exit 0"], 0),
        (["sh", "-c", "test $RANK = 1 && exit 7; exec sleep 60"], 7),
        (["sh", "-c", "test $RANK = 0 && kill -9 $$; exec sleep 60"], 128 + 9),
        (["sh", "-c", 'test $RANK = 0 && exit 3; trap "" TERM; sleep 60 & wait; wait'], 3),
        (["/nonexistent/command"], 127),
        (["/etc/passwd"], 126),
    ],
)
def test_exit_code_is_the_first_failing_ranks(launch, tmp_path, command, code):
    process = launch(tmp_path, "-n", 3, "--mode", "off", "--", *command)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (code, "")
    if code < 100:
        assert err == ""


def test_environment_of_the_ranks(launch, tmp_path):
    show = "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR ${MASTER_PORT:+port} [$LD_PRELOAD] $G"
    off = launch(tmp_path, "-n", 2, "--", "sh", "-c", show, GREYHOUND="off", G="x")
    assert sorted(off.communicate(timeout=60)[0].splitlines()) == [
        "0 0 2 2 127.0.0.1 port [] x",
        "1 1 2 2 127.0.0.1 port [] x",
    ]
    alone = launch(
        tmp_path, "--", "sh", "-c", "echo ${RANK-none} $GREYHOUND_NODE_INDEX $GREYHOUND_DIR; echo $LD_PRELOAD"
    )
    first, second = alone.communicate(timeout=60)[0].splitlines()
    assert first == f"none 0 {step_dir(os.getuid(), StepName(f'local-{alone.pid}', '0', 0), 0)}"
    assert second.endswith("libgreyhound_hook.so")


def test_term_is_forwarded_and_everything_ends(launch, tmp_path):
    process = launch(tmp_path, "-n", 2, "--", *ring_program(100000, 0.05))
    wait_for_status(process.pid, "tracking")
    children = psutil.Process(process.pid).children(recursive=True)
    assert len(children) >= 5
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM, err
    assert "greyhound: ended after" in err
    assert step_dirs(process.pid) == []
    assert [child for child in children if child.is_running()] == []


@pytest.mark.parametrize("victim", ["greyhound.control.node", "greyhound.control.master"])
def test_killed_analyzer_or_master_leaves_the_job_unharmed(launch, tmp_path, victim):
    enough = tmp_path / "enough"
    process = launch(tmp_path, "-n", 2, "--", *ring_program(100000, 0.05, "--until", enough))
    wait_for_status(process.pid, "tracking")
    child_with(process, victim).kill()
    kept = record(tmp_path, process) / "status.json"
    wait_for("unmonitored", lambda: read_status(kept)["state"] == "unmonitored")
    enough.touch()
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert sorted(out.split()) == sorted(["rank", "0", "done", "rank", "1", "done"])
    assert err.count("unmonitored") == 1, err
    assert "SIGKILL" in err or "head's analyzer died" in err
    assert "no report" in err
    kinds = [event["kind"] for event in read_events(kept.with_name("events.jsonl"))]
    assert kinds[-1] == "unmonitored" and kinds.count("unmonitored") == 1
    assert step_dirs(process.pid) == []


def test_killed_redis_is_started_again_and_signals_to_the_step_are_ignored(launch, tmp_path):
    process = launch(tmp_path, "-n", 2, "--", *ring_program(100000, 0.05))
    tracking = wait_for_status(process.pid, "tracking")
    for program in ("greyhound.control.node", "greyhound.control.master"):
        for signum in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
            child_with(process, program).send_signal(signum)
    for signum in (signal.SIGINT, signal.SIGTERM):
        child_with(process, "redis-server").send_signal(signum)
    child_with(process, "redis-server").kill()

    def monitored_again():
        status = wait_for_status(process.pid, "tracking")
        return status["notices"] and status["iteration"] > tracking["iteration"] + 40 and status

    status = wait_for("tracking after the death of Redis", monitored_again)
    assert status["notices"] == ["redis-server died: signal 9 (SIGKILL); started again"]
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert "unmonitored" not in err


def test_interrupt_reaches_the_ranks_and_their_exit_code_counts(launch, tmp_path):
    ready = tmp_path / "ready"
    script = f'trap "exit 9" INT; touch {ready}; while :; do sleep 0.05; done'
    process = launch(tmp_path, "--mode", "off", "--", "sh", "-c", script)
    wait_for("the rank", ready.exists)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[1] == ""
    assert process.returncode == 9


def test_no_room_in_shared_memory_is_said_and_nothing_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(local, "SHM", tmp_path)
    monitor = local.Monitor(Settings(record_dir=str(tmp_path)), 8, native_dir(), print)
    full = os.statvfs_result((4096, 4096, 100, 0, 10, 9, 9, 9, 0, 255))
    with monkeypatch.context() as patch, pytest.raises(local.UnmonitoredError, match="0 MiB free, 40 MiB are needed"):
        patch.setattr(local.os, "statvfs", lambda path: full)
        monitor.start()
    monitor.step_dir = tmp_path / "missing" / "greyhound-0-local-1.0.0.n0"
    with pytest.raises(local.UnmonitoredError, match="missing"):
        monitor.start()
    assert list(tmp_path.iterdir()) == []


def test_killed_launcher_leaves_nothing(launch, tmp_path):
    process = launch(tmp_path, "-n", 2, "--", *ring_program(100000, 0.05))
    wait_for_status(process.pid, "tracking")
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.communicate(timeout=60)
    wait_for("the children to end", lambda: not any(child.is_running() for child in children))
    assert step_dirs(process.pid) == []


def test_missing_hook_runs_the_job_unmonitored(launch, tmp_path):
    process = launch(tmp_path, "--native", tmp_path, "--", "sh", "-c", "echo ran; exit 5")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (5, "ran\n")
    assert err.count("\n") == 1
    assert "unmonitored" in err and "libgreyhound_hook.so is missing" in err


def test_bad_mode_is_refused_and_bad_environment_ignored(launch, tmp_path):
    process = launch(tmp_path, "--greyhound", "on,threshold=9", "--", "true")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "threshold=9" in err and "0.02..1.0" in err
    process = launch(tmp_path, "--mode", "off", "--", "true", GREYHOUND="sometimes")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert err.count("sometimes") == 1


def test_standin_page_lives_as_long_as_the_launch(launch, tmp_path):
    show = "echo $GREYHOUND_STANDIN_PAGE; echo $LD_LIBRARY_PATH; test -s $GREYHOUND_STANDIN_PAGE"
    process = launch(
        tmp_path, "-n", 1, "--gpus", 4, "--standin", "--mode", "off", "--", "sh", "-c", show, LD_LIBRARY_PATH="/x"
    )
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    page, path = out.splitlines()
    assert page == f"/dev/shm/greyhound-standin-{os.getuid()}-{process.pid}.page"
    assert path.endswith("/standin:/x")
    assert not os.path.exists(page)


def test_preload_keeps_others(tmp_path):
    hook = tmp_path / "hook.so"
    assert preload(hook, "") == str(hook)
    assert preload(hook, f"/a.so /b.so:{hook}") == f"{hook}:/a.so:/b.so"


def test_sweep_takes_dead_launches_only(tmp_path):
    uid = os.getuid()
    dead = step_dir(uid, StepName("local-4194305", "0", 0), 0, tmp_path)
    alive = step_dir(uid, StepName(f"local-{os.getpid()}", "0", 0), 0, tmp_path)
    slurm = step_dir(uid, StepName("4194305", "0", 0), 0, tmp_path)
    link = step_dir(uid, StepName("local-4194306", "0", 0), 0, tmp_path)
    link.symlink_to(slurm)
    for folder in (dead, alive, slurm):
        folder.mkdir()
    (slurm / "ring").touch()
    sweep_dead_launches(tmp_path)
    assert not dead.exists()
    assert alive.exists() and (slurm / "ring").exists()


def test_sweep_leaves_the_locked_directory_of_a_launch_whose_pid_is_not_ours_to_see(tmp_path):
    elsewhere = step_dir(os.getuid(), StepName("local-4194305", "0", 0), 0, tmp_path)
    held = step_lock.make(elsewhere)
    sweep_dead_launches(tmp_path)
    assert elsewhere.exists()
    os.close(held)
    sweep_dead_launches(tmp_path)
    assert not elsewhere.exists()


def test_launch_takes_a_dead_ones_place_and_nobody_elses(tmp_path, monkeypatch):
    monkeypatch.setattr(local, "SHM", tmp_path)
    monkeypatch.setattr(step_lock, "WAIT_S", 0.0)
    monitor = local.Monitor(Settings(record_dir=str(tmp_path / "records")), 1, native_dir(), print)
    monitor.step_dir = step_dir(os.getuid(), monitor._name, 0, tmp_path)
    held = step_lock.make(monitor.step_dir)
    (monitor.step_dir / "ring.1.1").touch()
    with pytest.raises(local.UnmonitoredError, match="still runs"):
        monitor.start()
    monitor.stop()
    assert (monitor.step_dir / "ring.1.1").exists()
    os.close(held)
    try:
        assert monitor.start()["GREYHOUND_DIR"] == str(monitor.step_dir)
        assert not (monitor.step_dir / "ring.1.1").exists()
        assert step_lock.lock(monitor.step_dir) is None
        os.close(monitor._lock)
        monitor._lock = os.open(monitor.step_dir, os.O_RDONLY)
        assert step_lock.lock(monitor.step_dir) is None, "the node process holds it as well"
    finally:
        monitor.stop()
    assert not monitor.step_dir.exists()


def test_directory_that_was_replaced_before_it_was_locked_is_let_be(tmp_path, monkeypatch):
    path = tmp_path / "greyhound-0-local-1.0.0.n0"
    path.mkdir()
    flock = step_lock.fcntl.flock

    def replaced_meanwhile(fd, how):
        monkeypatch.undo()
        path.rename(tmp_path / "removed")
        path.mkdir()
        (path / "ring.1.1").touch()
        flock(fd, how)

    monkeypatch.setattr(step_lock.fcntl, "flock", replaced_meanwhile)
    assert not step_lock.remove_dead(path)
    assert (path / "ring.1.1").exists()


def test_node_process_without_redis_says_so_and_ends_in_time(tmp_path):
    folder = tmp_path / "greyhound-0-5.0.0.n0"
    argv = [sys.executable, "-I", "-m", "greyhound.control.node", "--step-dir", folder, "--node-index", 0]
    argv += ["--node-count", 1, "--node-list", "n1", "--job", "local-5", "--step", 0, "--restart", 0, "--mode", "on"]
    argv += ["--record-dir", tmp_path / "records", "--redis-server", "/nonexistent/redis-server"]
    process = subprocess.Popen(
        [str(part) for part in argv], env=environment(tmp_path, GREYHOUND_TOKEN="ab" * 32), stderr=subprocess.PIPE
    )
    try:
        kept = tmp_path / "records/local-5/0.0/status.json"
        status = wait_for("unmonitored", lambda: (s := read_status(kept)) and s["state"] == "unmonitored" and s)
        assert "apt install redis-server" in status["reason"]
        process.send_signal(child.STOP)
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
    assert not folder.exists()
    assert process.stderr.read() == b""
    kinds = [event["kind"] for event in read_events(kept.with_name("events.jsonl"))]
    assert kinds == ["start", "unmonitored", "end"]


@pytest.mark.parametrize("hostile", [{"PYTHONHOME": "/nonexistent"}, {"PYTHONPATH": "{tmp}"}])
def test_the_training_s_python_variables_are_not_ours(tmp_path: Path, hostile: dict[str, str]) -> None:
    for name in ("sitecustomize.py", "click.py", "numpy.py"):
        (tmp_path / name).write_text("raise SystemExit(9)\n")
    given = {key: value.format(tmp=tmp_path) for key, value in hostile.items()}
    command = [str(Path(sys.executable).with_name("greyhound")), "launch", "--mode", "observe", "--"]
    environment = {**os.environ, **given, "HOME": str(tmp_path)}
    done = subprocess.run(
        [*command, "sh", "-c", "echo $PYTHONHOME$PYTHONPATH"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout.strip()) == (0, next(iter(given.values()))), done.stderr
