"""What the commands share that ask something of a running job's master: the request, and the wait for its answer."""

import os
import time
from pathlib import Path
from typing import Any

import click

from greyhound.cli.jobs import fail, find
from greyhound.control import requests
from greyhound.control.events import EventTail
from greyhound.control.lookup import Run

NOT_POSSIBLE = 2
REFUSED = 3
NO_ANSWER = 4
POLL_S = 0.2
WAIT_S = 90.0  # NFS shows a new file on another node after up to a minute


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
    if state == "ended" or run.is_silent(time.time()):
        fail(f"job {job} isn't watched any more ({state or 'no status'})", NOT_POSSIBLE)
    return run, run.record


class Answers:
    """The events of a run from now on."""

    def __init__(self, record: Path) -> None:
        """`record` is its record folder."""
        self._tail = EventTail(record / "events.jsonl")
        self._tail.new()

    def new(self) -> list[dict[str, Any]]:
        """What was written since the last call."""
        return self._tail.new()


def ask(record: Path, kind: str, fields: dict[str, Any], answers: Answers, wait_s: float = WAIT_S) -> dict[str, Any]:
    """Lay the request into the record folder and wait; the data of the answer. Exits where there is none."""
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
            time.sleep(POLL_S)
    except KeyboardInterrupt:
        requests.withdraw(record, request)
        raise
    return _no_answer(record, request, wait_s)


def _no_answer(record: Path, request: str, wait_s: float) -> dict[str, Any]:
    if requests.withdraw(record, request):
        fail(f"no answer in {wait_s:.0f} s: nobody took the request, the master is gone; it was withdrawn", NO_ANSWER)
    fail(f"no answer in {wait_s:.0f} s: the master took the request, but wrote no event (is the disk full?)", NO_ANSWER)
