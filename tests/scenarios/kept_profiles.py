"""What the analyzers sent to the master about their ranks, kept for whoever mends a wrong verdict.

`python -m tests.scenarios.kept_profiles FILE.up.json.gz...` judges kept profiles again, by the present code.
"""

import contextlib
import gzip
import json
import os
import sys
from pathlib import Path

import psutil

from greyhound.control import messages, rendezvous
from greyhound.control.bus import BusError, RedisBus
from greyhound.control.events import read_events
from greyhound.control.names import SHM, bus_prefix, parse_step_dir
from greyhound.control.profile_message import ProfileDone
from greyhound.localize.judge import judge
from greyhound.localize.model import RankProfile
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


def _profiles(bus: RedisBus) -> list[str]:
    """All messages with profiles; on a busy machine a read may take too long and is tried again."""
    found: list[str] = []
    for _ in range(MOST_READS):
        with contextlib.suppress(BusError):
            texts = bus.read("up")
            found += [text for text in texts if '"kind":"profile' in text]
            if not texts:
                break
    return found


def keep_profiles(job: WatchedJob, path: Path) -> int:
    """Write the messages of all profiles so far to PATH.up.json.gz, and the events beside it; how many messages."""
    bus = _bus(job)
    if bus is None:
        return 0
    messages = _profiles(bus)
    bus.close()
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(f"{path}.up.json.gz", "wt") as file:
        json.dump(messages, file)
    Path(f"{path}.events.jsonl").write_text(job.greyhound("events", job.name, "--json"))
    return len(messages)


def load(path: Path) -> dict[str, list[RankProfile]]:
    """The ranks' profiles by their run."""
    runs: dict[str, list[RankProfile]] = {}
    with gzip.open(path, "rt") as file:
        for message in map(messages.decode, json.load(file)):
            if isinstance(message.data, ProfileDone):
                runs.setdefault(message.data.run, []).extend(row.profile(message.node) for row in message.data.profiles)
    return runs


def judge_again(path: Path) -> list[str]:
    """A line for each profile but the first, which is the healthy one."""
    runs = load(path)
    events = list(read_events(Path(str(path).replace(".up.json.gz", ".events.jsonl"))))
    lost_s = {e["episode"]: e["data"]["slow_s"] - e["data"]["healthy_s"] for e in events if e["kind"] == "suspect"}
    first, *later = [event for event in events if event["kind"] == "profile"]
    lines = []
    for event in later:
        verdict = judge(runs[event["data"]["run"]], runs[first["data"]["run"]], lost_s.get(event["episode"]))
        named = [(one.kind, one.ranks, round(one.ratio, 2), round(one.share, 2)) for one in verdict.suspects]
        lines.append(f"{event['data']['reason']} {event['episode']}: {named or verdict.abstained}")
    return lines


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(name, *judge_again(Path(name)), sep="\n  ")
