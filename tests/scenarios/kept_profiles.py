"""What the analyzers sent to the master about their ranks, kept for whoever mends a wrong verdict."""

import contextlib
import gzip
import json
import os
from pathlib import Path

import psutil

from greyhound.control import rendezvous
from greyhound.control.bus import BusError, RedisBus
from greyhound.control.names import SHM, bus_prefix, parse_step_dir
from greyhound.sandbox.watched import WatchedJob

MOST_READS = 40


def _token(job: WatchedJob) -> bytes | None:
    """Of the test's own step: its node process has it."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if f"/greyhound-{os.getuid()}-{job.name}." in " ".join(process.cmdline()):
                text = process.environ().get("GREYHOUND_TOKEN")
                if text:
                    return rendezvous.token_bytes(text)
    return None


def _bus(job: WatchedJob) -> RedisBus | None:
    token = _token(job)
    folders = sorted(SHM.glob(f"greyhound-{os.getuid()}-{job.name}.*"))
    found = parse_step_dir(folders[0]) if folders else None
    if token is None or found is None:
        return None
    uid, name, _ = found
    for k in range(rendezvous.TRIES):
        with contextlib.suppress(BusError):
            return RedisBus("127.0.0.1", rendezvous.candidate(token, k), bus_prefix(uid, name))
    return None


def keep_profiles(job: WatchedJob, path: Path) -> int:
    """Write the messages of all profiles so far to PATH.up.json.gz, and the events beside it; how many messages."""
    bus = _bus(job)
    if bus is None:
        return 0
    messages = []
    with contextlib.suppress(BusError):
        for _ in range(MOST_READS):
            texts = bus.read("up")
            messages += [text for text in texts if '"kind":"profile' in text]
            if not texts:
                break
    bus.close()
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(f"{path}.up.json.gz", "wt") as file:
        json.dump(messages, file)
    Path(f"{path}.events.jsonl").write_text(job.greyhound("events", job.name, "--json"))
    return len(messages)
