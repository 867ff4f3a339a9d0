"""What the commands share that ask something of a running job's master: the request, and the wait for its answer."""

import os
import time
from pathlib import Path
from typing import Any

import click

from greyhound.cli.jobs import fail, find
from greyhound.cli.status import age_s
from greyhound.control import requests
from greyhound.control.events import EventTail
from greyhound.control.lookup import Run

NOT_POSSIBLE = 2
REFUSED = 3
NO_ANSWER = 4
POLL_S = 0.2
WAIT_S = 90.0  # NFS shows a new file on another node after up to a minute
LOOK_S = 1.0
GONE_S = 15.0  # the master writes its live status every second


def running(job: str, record_dir: Path | None) -> tuple[Run, Path]:
    """The run and its record folder, or exit 2 with a line that says why nothing can be asked of it."""
    run = find(job, record_dir)
    if run.record is None:
        fail(f"job {job} lives on this host, but its record is not in the record directories looked in", NOT_POSSIBLE)
    owner = run.record.lstat().st_uid
    if owner != os.geteuid():
        fail(f"only the owner of job {job} (uid {owner}) can ask for that, not uid {os.geteuid()}", NOT_POSSIBLE)
    status, _ = run.status()
    state = (status or {}).get("state")
    gone = "" if state == "ended" else why_gone(run)
    if state == "ended" or gone:
        fail(f"job {job} isn't watched any more ({gone or state})", NOT_POSSIBLE)
    return run, run.record


def why_gone(run: Run) -> str:
    """Why nobody will answer: no word of the master's for longer than one that lives is silent; else nothing.

    On the step's first host its live status says so soon, elsewhere the record after a while (docs/interfaces.md 6).
    """
    now = run.looked_at_again()
    if run.live is not None and now.live is None:
        return "its step directory is gone"
    status, live = now.status()
    age = age_s(status) if status is not None and live else None
    if age is not None and age > GONE_S:
        return f"its master has written nothing for {age:.0f} s"
    return now.last_words(time.time())


class Answers:
    """The events of a run from now on."""

    def __init__(self, record: Path) -> None:
        """`record` is its record folder."""
        self._tail = EventTail(record / "events.jsonl")
        self._tail.new()

    def new(self) -> list[dict[str, Any]]:
        """What was written since the last call."""
        return self._tail.new()


class Life:
    """Whether a run's master still lives, looked at once a second at most."""

    def __init__(self, run: Run) -> None:
        """`run` as it was found."""
        self._run = run
        self._due_s = 0.0
        self._why = ""

    def why_gone(self) -> str:
        """Why nobody will answer, or nothing. Told only once it held for two looks: a last event may be on its way."""
        if time.monotonic() < self._due_s:
            return ""
        self._due_s = time.monotonic() + LOOK_S
        before, self._why = self._why, why_gone(self._run)
        return self._why if before else ""


def ask(run: Run, kind: str, fields: dict[str, Any], answers: Answers, wait_s: float = WAIT_S) -> dict[str, Any]:
    """Lay the request into the run's record folder and wait; the data of the answer. Exits where there is none."""
    record, life = run.record, Life(run)
    assert record is not None
    try:
        request = requests.submit(record, kind, fields)
    except requests.RequestError as error:
        raise click.UsageError(str(error)) from None
    except OSError as error:
        fail(f"the request can't be written to {record}: {error.strerror}", NOT_POSSIBLE)
    until_s = time.monotonic() + wait_s
    try:
        while time.monotonic() < until_s:
            for event in answers.new():
                if event["kind"] == "setting" and event["data"].get("request") == request:
                    return dict(event["data"])
                if event["kind"] == "end":
                    requests.withdraw(record, request)
                    fail("the job ended before it answered", NO_ANSWER)
            if gone := life.why_gone():
                requests.withdraw(record, request)
                fail(f"no answer: the job isn't watched any more ({gone})", NO_ANSWER)
            time.sleep(POLL_S)
    except KeyboardInterrupt:
        requests.withdraw(record, request)
        raise
    return _no_answer(record, request, wait_s)


def _no_answer(record: Path, request: str, wait_s: float) -> dict[str, Any]:
    if requests.withdraw(record, request):
        fail(f"no answer in {wait_s:.0f} s: nobody took the request, the master is gone; it was withdrawn", NO_ANSWER)
    fail(f"no answer in {wait_s:.0f} s: the master took the request, but wrote no event (is the disk full?)", NO_ANSWER)
