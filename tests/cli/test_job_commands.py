"""`greyhound status` and `greyhound events`: live, recorded, stale, unknown."""

import json
import os
import time

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from greyhound.cli import jobs
from greyhound.cli.main import main
from greyhound.control import lookup, step_lock
from greyhound.control.events import EventLog, utc
from greyhound.control.names import StepName, step_dir
from greyhound.control.record import folder

EPISODE = {
    "id": "e1", "open": True, "onset": 100, "reported": 104, "healthy_s": 0.5, "slow_s": 0.75, "slowdown": 1.5,
    "end": None, "duration_s": None, "lost_s": 2.5, "cause": None, "ranks": 2,
}  # fmt: skip


@pytest.fixture
def records(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("GREYHOUND_RECORD_DIR", raising=False)
    monkeypatch.setattr(lookup, "SITE_FILE", tmp_path / "none.toml")
    monkeypatch.setattr(jobs, "existing", list)
    return tmp_path / "home/.local/state/greyhound"


def status(name, state="tracking", written_s=None, **extra):
    written_s = time.time() if written_s is None else written_s
    return {
        "v": 1, "job": name.job, "step": name.step, "restart": name.restart, "mode": "on", "time": utc(written_s),
        "state": state, "reason": None, "iteration": 104, "iteration_s": 0.75, "healthy_s": 0.5, "tasks": 8,
        "ranks": 8, "tracked": 8, "lost_s": 2.5, "episodes": [], "notices": [], **extra,
    }  # fmt: skip


def put(root, name, content):
    place = folder(root, name)
    place.mkdir(parents=True, exist_ok=True)
    (place / "status.json").write_text(json.dumps(content))
    return place


@pytest.fixture
def live():
    """Makes live step directories of jobs of this process; they are removed afterwards."""
    made = []

    def make(name, content):
        path = step_dir(os.getuid(), name, 0)
        path.mkdir(mode=0o700)
        made.append(path)
        (path / "status.json").write_text(json.dumps(content))

    yield make
    for path in made:
        (path / "status.json").unlink()
        path.rmdir()


def run(*arguments):
    return CliRunner().invoke(main, list(arguments))


def test_record_of_an_ended_job(records):
    name = StepName("123_4", "0", 0)
    put(records, name, status(name, "ended", 0.0, reason="the step ended", episodes=[{**EPISODE, "open": False}]))
    answer = run("status", "123_4")
    assert answer.exit_code == 0, answer.output
    assert "job 123_4.0  ended: the step ended" in answer.output
    assert "750 ms, healthy 500 ms (1.50x)" in answer.output
    assert "over    e1" in answer.output
    assert "stale" not in answer.output
    assert json.loads(run("status", "123_4.0", "--json").output)["source"] == "record"


def test_live_status_wins_over_the_record_and_over_ended_steps(records, live):
    job = f"local-{os.getpid()}"
    first, second = StepName(job, "0", 0), StepName(job, "1", 0)
    put(records, first, status(first, "ended"))
    put(records, second, status(second, "waiting", 0.0))
    live(first, status(first, "suspect", episodes=[EPISODE], notices=["watch out"]))
    answer = run("status", job)
    assert "suspect" in answer.output
    assert "open    e1: iterations 100-open, 1.50x, 2.5 s lost" in answer.output
    assert "watch out" in answer.output
    shown = json.loads(run("status", job, "--json").output)
    assert (shown["source"], shown["stale"], shown["step"]) == ("live", False, "0")
    assert json.loads(run("status", f"{job}.1", "--json").output)["state"] == "waiting"


def test_old_live_status_is_stale(records, live):
    name = StepName(f"local-{os.getpid()}", "0", 0)
    live(name, status(name, "tracking", time.time() - 600))
    assert "stale: last written 600" in run("status", name.job).output
    assert json.loads(run("status", name.job, "--json").output)["stale"] is True


def test_newest_restart_is_shown(records):
    for restart in (0, 1, 2):
        name = StepName("9", "0", restart)
        place = put(records, name, status(name, "ended"))
        os.utime(place / "status.json", (1000 + restart, 1000 + restart))
    assert json.loads(run("status", "9", "--json").output)["restart"] == 2


def test_watch_ends_with_the_job(records):
    name = StepName("9", "0", 0)
    put(records, name, status(name, "ended"))
    for extra in ([], ["--json"]):
        answer = run("status", "9", "--watch", *extra)
        assert answer.exit_code == 0
        assert "ended" in answer.output


def test_events_for_people_and_programs(records):
    name = StepName("9", "0", 0)
    place = put(records, name, status(name, "ended"))
    log = EventLog(place / "events.jsonl", name)
    log.append("start", 0.0, {"mode": "on", "nodes": 4})
    log.append("suspect", 61.0, EPISODE, "e1", 104)
    log.append("end", 90.0, {"iterations": 200, "healthy_s": 0.5, "episodes": [], "lost_s": 0, "tracked": 8})
    for extra in ([], ["--follow"]):
        lines = run("events", "9", *extra).output.splitlines()
        assert len(lines) == 3
        assert lines[0] == "1970-01-01 00:00:00  start        watching 9.0 (on), 4 nodes"
        assert "1970-01-01 00:01:01  suspect      fail-slow e1 at iteration 104" in lines[1]
    programs = [json.loads(line) for line in run("events", "9", "--json").output.splitlines()]
    assert [event["seq"] for event in programs] == [1, 2, 3]


def test_record_dirs_are_tried_in_order(tmp_path, records, monkeypatch):
    name = StepName("9", "0", 0)
    site_file = tmp_path / "greyhound.toml"
    site_file.write_text(f'record_dir = "{tmp_path}/site"\n')
    monkeypatch.setattr(lookup, "SITE_FILE", site_file)
    put(records, name, status(name, "ended", iteration=1))
    assert json.loads(run("status", "9", "--json").output)["iteration"] == 1
    put(tmp_path / "site", name, status(name, "ended", iteration=2))
    assert json.loads(run("status", "9", "--json").output)["iteration"] == 2
    put(tmp_path / "env", name, status(name, "ended", iteration=3))
    monkeypatch.setenv("GREYHOUND_RECORD_DIR", str(tmp_path / "env"))
    assert json.loads(run("status", "9", "--json").output)["iteration"] == 3
    put(tmp_path / "given", name, status(name, "ended", iteration=4))
    given_dir = ["--record-dir", str(tmp_path / "given")]
    assert json.loads(run("status", "9", "--json", *given_dir).output)["iteration"] == 4
    missing = run("status", "9", "--record-dir", str(tmp_path / "empty"))
    assert missing.exit_code == 2


@pytest.mark.parametrize("command", ["status", "events"])
@pytest.mark.parametrize("job", ["4711", "local-4194305", "4711.7"])
def test_unknown_job_names_where_it_looked(records, command, job):
    answer = run(command, job)
    assert answer.exit_code == 2
    assert job in answer.output
    assert str(records) in answer.output and "/dev/shm" in answer.output


@pytest.mark.parametrize("job", ["", "x", "../../etc", "1;2", "local-", "local-1/..", "1.2.3"])
def test_what_is_no_job_id_is_refused(records, job):
    answer = run("status", job)
    assert answer.exit_code == 2
    assert "give 123" in answer.output


@given(st.text(max_size=20))
def test_any_text_is_a_job_or_refused(text):
    try:
        wanted = lookup.parse_job(text)
    except lookup.LookupFailedError as error:
        assert "job id" in str(error)
    else:
        assert "/" not in wanted.job and wanted.job not in ("", ".", "..")


def test_broken_status_file_is_no_traceback(records):
    place = put(records, StepName("9", "0", 0), {})
    (place / "status.json").write_text("{")
    answer = run("status", "9")
    assert answer.exit_code == 2
    assert "no status yet" in answer.output


STRANGER = 12345
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")


@pytest.fixture
def shm(tmp_path):
    (tmp_path / "shm").mkdir()
    return tmp_path / "shm"


def lay(shm, name, uid, owner):
    """A step directory with a status, named for `uid` and owned by `owner`."""
    path = step_dir(uid, name, 0, shm)
    path.mkdir(mode=0o755)
    (path / "status.json").write_text(json.dumps(status(name, iteration=666)))
    os.chown(path / "status.json", owner, owner)
    os.chown(path, owner, owner)
    return path


def live_of(shm, name):
    try:
        return lookup.find_run(f"{name.job}.{name.step}", [], shm).live
    except lookup.LookupFailedError:
        return None


@as_root
def test_live_status_of_a_stranger_is_not_believed(shm, monkeypatch):
    mine, theirs = StepName("77", "0", 0), StepName("78", "0", 0)
    lay(shm, mine, os.getuid(), STRANGER)
    path = lay(shm, theirs, STRANGER, STRANGER)
    assert live_of(shm, mine) is None
    assert live_of(shm, theirs) == path
    monkeypatch.setattr(lookup.os, "geteuid", lambda: STRANGER + 1)
    assert live_of(shm, theirs) is None
    monkeypatch.setattr(lookup.os, "geteuid", lambda: STRANGER)
    assert live_of(shm, theirs) == path
    (path.parent / "aside").mkdir()
    path.rename(path.parent / "aside" / path.name)
    path.symlink_to(path.parent / "aside" / path.name)
    assert live_of(shm, theirs) is None


def test_what_is_no_plain_file_of_bounded_size_is_no_live_status(shm, monkeypatch):
    name = StepName("77", "0", 0)
    path = lay(shm, name, os.getuid(), os.getuid()) / "status.json"
    run = lookup.find_run("77", [], shm)
    assert run.status()[0]["iteration"] == 666
    with monkeypatch.context() as patch:
        patch.setattr("greyhound.control.status.MOST_BYTES", path.stat().st_size - 1)
        assert run.status() == (None, False)
    elsewhere = path.rename(shm / "elsewhere")
    path.symlink_to(elsewhere)
    assert (live_of(shm, name), run.status()) == (None, (None, False))
    path.unlink()
    os.mkfifo(path)
    assert (live_of(shm, name), run.status()) == (None, (None, False))


@as_root
def test_ones_own_record_wins_over_a_strangers_of_the_same_name(tmp_path, records):
    name = StepName("9", "0", 0)
    forged = put(tmp_path / "open", name, status(name, "ended", iteration=666))
    os.chown(forged, STRANGER, STRANGER)
    own = put(tmp_path / "home", name, status(name, "ended", iteration=1))
    run = lookup.find_run("9", [tmp_path / "open", tmp_path / "home"])
    assert run.record == own
    assert lookup.find_run("9", [tmp_path / "open"]).record == forged


def slurm_knows(tmp_path, monkeypatch, **programs):
    """Put stand-ins for Slurm's commands, which cost a shell each, first on PATH."""
    for name, body in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


def test_array_task_is_found_under_slurms_own_number(records, tmp_path, monkeypatch):
    slurm_knows(tmp_path, monkeypatch, scontrol='[ "$4" = 120_1 ] && echo "JobId=127 ArrayJobId=120 ArrayTaskId=1"')
    put(records, StepName("127", "0", 0), status(StepName("127", "0", 0)))
    for wanted in ("120_1", "120_1.0"):
        assert json.loads(run("status", wanted, "--json").stdout)["job"] == "127"
    assert run("status", "120_2").exit_code == 2


def test_record_that_nobody_writes_any_more_is_over(records):
    name = StepName("51", "0", 0)
    place = put(records, name, status(name, written_s=time.time() - 400))
    EventLog(place / "events.jsonl", name).append("tracking", time.time() - 400, {"ranks": 8})
    for file in place.iterdir():
        os.utime(file, (time.time() - 400, time.time() - 400))
    shown = json.loads(run("status", "51", "--json").stdout)
    assert (shown["state"], shown["stale"], shown["over"]) == ("tracking", True, True)
    heard = utc(place.joinpath("status.json").stat().st_mtime)[:19].replace("T", " ")
    words = f"killed: no last word since {heard} UTC"
    assert (shown["killed"], words in run("status", "51", "--watch").stdout) == (words, True)
    for options in ([], ["--follow"]):
        told = run("events", "51", *options)
        assert (told.exit_code, told.stderr) == (0, f"greyhound: {words}\n")


def test_a_step_directory_that_nobody_holds_is_no_sign_of_life(records, live):
    """slurmstepd and all of ours were killed at once: the directory stays, with its last status."""
    name = StepName(f"local-{os.getpid()}", "0", 0)
    live(name, status(name, "tracking", time.time() - 600))
    path = step_dir(os.getuid(), name, 0)
    os.utime(path / "status.json", (time.time() - 600, time.time() - 600))
    assert "killed: no last word since" in run("status", name.job).output
    held = step_lock.lock(path)
    assert held is not None
    try:
        assert "stale: last written 600" in run("status", name.job).output
        assert json.loads(run("status", name.job, "--json").output)["killed"] == ""
    finally:
        os.close(held)


def test_watch_waits_for_a_job_that_slurm_has_accepted(records, tmp_path, monkeypatch):
    name = StepName("61", "0", 0)
    monkeypatch.setattr("greyhound.cli.jobs.WAIT_S", 0.05)
    script = f"[ -e {tmp_path}/asked ] || {{ touch {tmp_path}/asked; echo PENDING; exit; }}; exit 1"
    slurm_knows(tmp_path, monkeypatch, squeue=script)
    assert run("status", "61").exit_code == 2  # not asked to wait

    def appear(_seconds):
        put(records, name, status(name, "ended"))

    monkeypatch.setattr("greyhound.cli.jobs.time.sleep", appear)
    shown = run("status", "61", "--watch", "--json")
    assert json.loads(shown.stdout)["state"] == "ended"
    assert "waiting for job 61" in shown.stderr


def test_status_shows_a_verdict_its_reasons_and_a_fail_stop(records):
    name = StepName("78", "0", 0)
    suspect = {"reasons": ["own time 1.90 x", "clocks: power cap"], "identity": {"node": "n3", "bus": "0000:0b:00.0"}}
    verdict = {"episode": "e1", "text": "fail-slow e1 is n3", "suspects": [suspect], "notes": ["nvml: n/a"]}
    put(records, name, status(name, verdict=verdict, fail_stop={"text": "fail-stop on n4: rank 7 does not come"}))
    output = run("status", "78").output
    for line in ("verdict fail-slow e1 is n3", "own time 1.90 x", "clocks: power cap", "note: nvml: n/a"):
        assert line in output
    assert "n3: GPU 0000:0b:00.0 (n/a), serial n/a" in output
    assert "stopped fail-stop on n4: rank 7 does not come" in output
    nobody = {"episode": None, "text": "nothing is slow", "suspects": [], "notes": []}
    put(records, name, status(name, verdict=nobody))
    assert "verdict" not in run("status", "78").output
