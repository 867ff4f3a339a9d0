"""`greyhound set` and `greyhound ab`: what they ask, wait for and say."""

import json
import os
import subprocess
import threading
import time

import pytest

from greyhound.cli import ab as ab_command
from greyhound.cli import ask as ask_module
from greyhound.control.events import EventLog
from greyhound.control.names import StepName
from greyhound.control.requests import RequestBox
from tests.cli.test_job_commands import live, put, records, run, status  # noqa: F401 - `live` and `records` are fixtures
from tests.control.helpers import GREYHOUND, environment, launch, ring_program, wait_for_status

NAME = StepName("77", "0", 0)


class FakeMaster:
    """Answers the requests of one record folder by events, as the master does."""

    def __init__(self, folder, answer):
        self._box = RequestBox(folder)
        self._events = EventLog(folder / "events.jsonl", NAME)
        self._answer = answer
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.requests = []

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *ignored):
        self._over.set()
        self._thread.join(20)

    def emit(self, kind, **data):
        self._events.append(kind, time.time(), data)

    def _run(self):
        while not self._over.wait(0.02):
            for request in self._box.take():
                self.requests.append(request)
                self._answer(self, request)


@pytest.fixture
def record(records):  # noqa: F811
    return put(records, NAME, status(NAME))


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["colour=red"], "'colour=red'"),
        (["mode"], "'mode'"),
        (["mode=fast"], "'fast'"),
        (["threshold=7"], "threshold=7"),
        (["mode=off", "mode=on"], "given twice"),
        (["warmup=10"], "can't be set while a job runs"),
    ],
)
def test_bad_wish_is_refused_by_its_text(record, words, part):
    answer = run("set", "77", *words)
    assert answer.exit_code == 2 and part in answer.output
    assert not list(record.glob("request*"))


def test_job_that_is_over_or_another_s_or_unknown_cannot_be_asked(records, record):  # noqa: F811
    put(records, NAME, status(NAME, "ended"))
    assert (run("set", "77", "mode=off").exit_code, run("set", "78", "mode=off").exit_code) == (2, 2)
    assert "isn't watched any more (ended)" in run("ab", "77").output
    put(records, NAME, status(NAME))
    if os.geteuid() == 0:
        os.chown(record, 12345, 12345)
        assert "only the owner of job 77 (uid 12345)" in run("set", "77", "mode=off").output


def test_no_answer_is_said_and_the_request_withdrawn(record):
    answer = run("set", "77", "mode=off", "--wait", "1")
    assert answer.exit_code == 4
    assert "nobody took the request" in answer.output and "withdrawn" in answer.output
    assert not list(record.glob("request*"))


def test_master_that_is_gone_is_not_waited_for(records, live):  # noqa: F811
    """Its live status stands still, whoever holds the step directory; nothing is asked."""
    folder = put(records, NAME, status(NAME))
    live(NAME, status(NAME, written_s=time.time() - ask_module.GONE_S - 1))
    for words in (("set", "77", "mode=off"), ("ab", "77"), ("trace", "record", "77")):
        answer = run(*words)
        assert answer.exit_code == 2 and "its master has written nothing for 16 s" in answer.output, answer.output
    assert not list(folder.glob("request*"))


def test_master_that_dies_before_it_answers_ends_the_wait(records, live, monkeypatch):  # noqa: F811
    monkeypatch.setattr(ask_module, "GONE_S", 0.5)
    folder = put(records, NAME, status(NAME))
    live(NAME, status(NAME))
    answer = run("set", "77", "mode=off", "--wait", "3000")
    assert answer.exit_code == 4 and "its master has written nothing" in answer.output
    assert not list(folder.glob("request*"))


def test_step_directory_that_is_gone_or_a_record_long_silent_ends_the_wait(records, live):  # noqa: F811
    folder = put(records, NAME, status(NAME))
    live(NAME, status(NAME))
    found, _ = ask_module.running("77", None)
    assert ask_module.why_gone(found) == "" and found.live is not None
    hidden = found.live.rename(f"{found.live}.hidden")
    assert ask_module.why_gone(found) == "its step directory is gone"
    here_alone, _ = ask_module.running("77", None)
    hidden.rename(found.live)
    os.utime(folder / "status.json", (time.time() - 200,) * 2)
    assert "killed: no last word since" in ask_module.why_gone(here_alone)


def test_refusal_and_end_of_the_job_are_answers(record):
    with FakeMaster(record, lambda m, r: m.emit("setting", request=r.id, applied=False, text="no")):
        refused = run("set", "77", "mode=off")
        assert (refused.exit_code, "refused: no" in refused.output) == (3, True)
    with FakeMaster(record, lambda m, r: m.emit("end", reason="the step ended")):
        ended = run("set", "77", "mode=off")
        assert (ended.exit_code, "ended before it answered" in ended.output) == (4, True)


def answer_with(pairs, reason="done"):
    def answer(master, request):
        master.emit("ab", run=request.id, phase="start", windows=2 * pairs, window_s=4.0)
        master.emit("setting", request=request.id, applied=True, text="comparing")
        for number in range(2 * pairs):
            muted = number % 2 == 0
            took_s = 1.0 if muted else 1.01 + 0.0001 * number
            data = {"iterations": 12, "iteration_s": took_s, "share": 1.0 if muted else 0.0, "dropped": None}
            master.emit("ab", run=request.id, phase="window", window=number, muted=muted, **data)
        master.emit("ab", run="another", phase="end", reason="done")
        master.emit("ab", run=request.id, phase="end", reason=reason)

    return answer


def test_comparison_is_followed_to_its_end(record):
    with FakeMaster(record, answer_with(6)) as master:
        answer = run("ab", "77", "--minutes", "2")
    assert answer.exit_code == 0, answer.output
    assert [(r.kind, r.fields) for r in master.requests] == [("ab", {"minutes": 2.0})]
    assert "+1.06 %" in " ".join(answer.output.split()) and "from 6 pairs" in " ".join(answer.output.split())


def test_comparison_for_programs_and_one_with_too_few_windows(record):
    with FakeMaster(record, answer_with(2)):
        answer = run("ab", "77", "--json")
    assert answer.exit_code == 5
    found = json.loads(answer.stdout.splitlines()[-1])
    assert found["cost"] is None and "too few to say anything" in found["text"] and len(found["windows"]) == 4
    with FakeMaster(record, answer_with(6, "its owner stopped it")):
        stopped = run("ab", "77")
    assert stopped.exit_code == 0 and "ended early: its owner stopped it" in stopped.output
    assert "from 6 pairs" in " ".join(stopped.output.split())
    with FakeMaster(record, answer_with(1, "the job ended")):
        assert run("ab", "77").exit_code == 5


def test_comparison_whose_master_dies_ends_with_what_there_is(records, live, monkeypatch):  # noqa: F811
    monkeypatch.setattr(ask_module, "GONE_S", 1.0)
    folder = put(records, NAME, status(NAME))
    live(NAME, status(NAME))
    with FakeMaster(folder, lambda m, r: m.emit("setting", request=r.id, applied=True, text="comparing")):
        answer = run("ab", "77")
    assert answer.exit_code == 4 and "ended early: the job isn't watched any more (its master" in answer.output


def test_interrupted_comparison_asks_the_job_to_record_again(record, monkeypatch):
    def interrupt(follower, console):
        raise KeyboardInterrupt

    monkeypatch.setattr(ab_command, "show_progress", interrupt)
    with FakeMaster(record, lambda m, r: m.emit("setting", request=r.id, applied=True, text="stopped")) as master:
        answer = run("ab", "77")
    assert answer.exit_code == 130
    assert [request.kind for request in master.requests] == ["ab", "ab_stop"]


def test_settings_of_a_running_job(tmp_path):
    """With a master, an analyzer and Redis."""
    job = launch(tmp_path, "-n", 1, "--", *ring_program(4000, 0.05, "--until", tmp_path / "stop"))

    def ask(*words):
        command = [GREYHOUND, "set", f"local-{job.pid}", *words, "--json", "--wait", "30"]
        done = subprocess.run(
            command, env=environment(tmp_path), capture_output=True, text=True, timeout=60, check=True
        )
        return json.loads(done.stdout)

    try:
        wait_for_status(job.pid, "tracking")
        answer = ask("mode=off", "threshold=0.05")
        assert (answer["applied"], answer["mode"], answer["threshold"]) == (True, "off", 0.05)
        assert wait_for_status(job.pid, "muted")["reason"] == "muted by the job's owner (mode=off)"
        assert ask("mode=observe")["threshold"] == 0.05
        assert wait_for_status(job.pid, "tracking")["settings"]["threshold"] == 0.05
    finally:
        (tmp_path / "stop").touch()
        _, errors = job.communicate(timeout=60)
    assert job.returncode == 0
    assert "muted by the job's owner" in errors and "recording again" in errors
    assert "no fail-slow" in errors


def test_calls_of_a_running_job_in_files(tmp_path):
    """With a master, analyzers and Redis: recorded, moved, and analysed."""
    job = launch(tmp_path, "-n", 2, "--", *ring_program(4000, 0.11, "--until", tmp_path / "stop"))

    def greyhound(*words, code=0):
        command = [GREYHOUND, *map(str, words)]
        done = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True, timeout=90)
        assert done.returncode == code, done.stderr
        return done.stdout

    try:
        wait_for_status(job.pid, "tracking")
        files = greyhound("trace", "record", f"local-{job.pid}", "--seconds", 6, "-o", tmp_path / "calls").splitlines()
        assert len(files) == 2
        rows = [json.loads(line) for line in greyhound("detect", "--json", *files).splitlines()]
        assert [row["n"] > 30 for row in rows] == [True, True]
        assert [row["episodes"] for row in rows] == [[], []]
        kept = json.loads(greyhound("trace", "record", f"local-{job.pid}", "--seconds", 0.5, "--json"))["nodes"]
        assert [(len(row["files"]), row["calls"] > 0, row["why_not"]) for row in kept] == [(2, True, "")]
        greyhound("trace", "record", f"local-{job.pid}", "--seconds", 1000, code=2)
    finally:
        (tmp_path / "stop").touch()
        job.communicate(timeout=60)
    assert job.returncode == 0


def test_recording_that_fails_on_a_node_says_so(record, tmp_path):
    rows = [
        {"node": "n1", "files": ["trace.1.ghdump"], "calls": 5, "why_not": ""},
        {"node": "n2", "files": [], "calls": 0, "why_not": "can't be written to /records: No space left on device"},
        {"node": "n3", "files": ["../../elsewhere/trace.2.ghdump"], "calls": 5, "why_not": ""},
    ]

    def answer(master, request):
        master.emit("setting", request=request.id, applied=True, text="recording")
        master.emit("trace", run=request.id, seconds=1.0, nodes=rows)

    (record / "trace.1.ghdump").write_bytes(b"calls")
    with FakeMaster(record, answer) as master:
        done = run("trace", "record", "77", "--seconds", "1", "-o", str(tmp_path / "out"))
    assert done.exit_code == 5
    assert [(request.kind, request.fields) for request in master.requests] == [("trace", {"seconds": 1.0})]
    assert (tmp_path / "out" / "trace.1.ghdump").read_bytes() == b"calls"
    assert "n2: can't be written to /records: No space left" in done.output
    assert "n3:" in done.output and "not seen from this host" in done.output
