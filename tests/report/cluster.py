"""Jobs of several users on a real cluster, each with what a report must say of it."""

import contextlib
import csv
import io
import json
import os
import pwd
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import median

from greyhound.sandbox.cluster import Sandbox
from tests.endings.bed import build_training, kill, of_directory, until

SOURCE = Path(__file__).with_name("native") / "planned.c"
GROUP = "operator"
OPERATOR, STRANGER = "irc", "uucp"
LAST_STATES = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT")
HOSTILE = "a|b\n<script>alert(1)</script>"
LONG = "gröss" * 40  # slurmdbd keeps 255 bytes
FACTOR, FROM, TO, USUAL_MS, ITERATIONS = 1.5, 50, 90, 120, 115


@dataclass
class Planned:
    """A job that was handed in: `attempts` runs, of which each was `watched`; `slow` if a fail-slow is in it."""

    key: str
    user: str
    folder: Path
    job: int
    state: str = "COMPLETED"
    attempts: int = 1
    watched: bool = True
    slow: bool = False
    name: str | None = None
    rows: int = 1
    """Tasks of an array, components of a heterogeneous job."""

    def ends_s(self, task: int = 0, restart: int = 0) -> list[float]:
        """When each iteration ended, seconds since the epoch."""
        text = (self.folder / f"ends.{task}.{restart}").read_text()
        return [int(line) / 1e9 for line in text[: text.rfind("\n") + 1].split()]

    def iterations(self, restart: int = 0) -> int:
        """How many it did so far."""
        with contextlib.suppress(OSError):
            return len(self.ends_s(restart=restart))
        return 0


@dataclass
class Cluster:
    """The sandbox, the training and the jobs so far."""

    sandbox: Sandbox
    work: Path
    training: Path
    jobs: dict[str, Planned] = field(default_factory=dict)

    def submit(
        self,
        key: str,
        user: str,
        script: str,
        *options: str,
        state: str = "COMPLETED",
        watched: bool = True,
        name: str | None = None,
        rows: int = 1,
        slow: bool = False,
    ) -> Planned:
        """Hand in a batch script as a user; `@` in it is the training with its folder."""
        account = pwd.getpwnam(user)
        folder = self.work / key.replace(" ", "-")  # the shell splits at blanks
        folder.mkdir()
        body = script.replace("@", f"{self.training} {folder}")
        (folder / "job.sh").write_text(f"#!/bin/bash\n{body}\n")
        os.chown(folder, account.pw_uid, account.pw_gid)
        named = [f"--job-name={name}"] if name is not None else []
        command = ["sbatch", "--parsable", f"--output={folder}/out", "--mem=200", *named, *options]
        done = self.sandbox.run([*command, str(folder / "job.sh")], user=user, cwd=folder)
        assert done.returncode == 0, done.stderr
        job = int(done.stdout.strip().split(";")[0])
        self.jobs[key] = Planned(key, user, folder, job, state, 1, watched, slow, name, rows)
        return self.jobs[key]

    def last_states(self, planned: Planned) -> list[str]:
        """States of all its rows in accounting."""
        answer = self.sandbox.run(["sacct", "-DXnP", "-o", "State", "-j", str(planned.job)]).stdout
        return [line.split()[0] for line in answer.splitlines() if line]

    def over(self, planned: Planned) -> bool:
        """Whether accounting has all its runs, ended."""
        states = self.last_states(planned)
        last = [state for state in states if state in LAST_STATES]
        return len(states) == planned.rows + planned.attempts - 1 and len(last) == planned.rows

    def wait(self, *keys: str, limit_s: float = 120) -> None:
        """Until these jobs (all, if none is named) are over."""
        for key in keys or self.jobs:
            planned = self.jobs[key]
            until(lambda p=planned: self.over(p), lambda p=planned: self._end_of(p), limit_s, 0.3)  # type: ignore[misc]

    def _end_of(self, planned: Planned) -> str:
        """What a job that doesn't end is doing."""
        queue = self.sandbox.run(["squeue", "-h", "-j", str(planned.job), "-o", "%i %T %r"]).stdout
        told = [path.read_text(errors="replace")[-500:] for path in planned.folder.glob("out*")]
        return f"the end of {planned.key} {planned.job}: {self.last_states(planned)}, {queue}, {told}"

    def requeue(self, planned: Planned, at: int = 80, tracked: bool = False) -> None:
        """Once so many iterations are done, and its watch has found them if that is asked."""
        restart = planned.attempts - 1
        until(lambda: planned.iterations(restart) >= at, f"run {restart} of {planned.key}", 60, 0.1)
        if tracked:
            until(lambda: self.events(planned, "tracking", restart), lambda: self.told(planned), 60, 0.2)
        done = self.sandbox.run(["scontrol", "requeue", str(planned.job)], timeout_s=60)
        assert done.returncode == 0, done.stderr
        planned.attempts += 1

    def kill_watch(self, planned: Planned) -> None:
        """-9 to everything of ours in the job, as the end of a node would."""
        uid = pwd.getpwnam(planned.user).pw_uid
        kill(*(process.pid for process in of_directory(f"/dev/shm/greyhound-{uid}-{planned.job}.")))

    def events(self, planned: Planned, kind: str, restart: int = 0) -> list[dict[str, object]]:
        """Of its first step."""
        path = self.sandbox.layout.records / str(planned.job) / f"0.{restart}" / "events.jsonl"
        with contextlib.suppress(OSError):
            found = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
            return [event for event in found if event["kind"] == kind]
        return []

    def told(self, planned: Planned) -> str:
        """The end of the log of its first step and run, and its own output's."""
        folder = self.sandbox.layout.records / str(planned.job) / "0.0"
        files = [*folder.glob("greyhound.log"), *folder.glob("events.jsonl"), *planned.folder.glob("out*")]
        return "\n".join(path.read_text(errors="replace")[-2000:] for path in files)

    def report(self, *options: str, user: str | None = None, groups: Sequence[str] = ()) -> str:
        """`greyhound report` about the jobs so far, as a user; what it prints."""
        jobs = ",".join(str(planned.job) for planned in self.jobs.values())
        done = self.greyhound("report", "--all-users", f"--jobs={jobs}", *options, user=user, groups=groups)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def greyhound(
        self, *arguments: str, user: str | None = None, groups: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        """A `greyhound` command, as a user in more groups than their own."""
        become = []
        if user is not None:
            gid = pwd.getpwnam(user).pw_gid
            more = f"--groups={','.join(groups)}" if groups else "--clear-groups"
            become = ["setpriv", f"--reuid={user}", f"--regid={gid}", more]
        return self.sandbox.run([*become, sys.executable, "-m", "greyhound", *arguments], timeout_s=120)

    def rows(self, planned: Planned, report: dict[str, object]) -> list[dict[str, object]]:
        """A job's rows of a report."""
        rows = report["rows"]
        assert isinstance(rows, list)
        return [row for row in rows if re.split(r"[_+]", row["job"])[0] == str(planned.job)]


@contextlib.contextmanager
def opened(sandbox: Sandbox, work: Path) -> Iterator[Cluster]:
    """The cluster with a record directory as docs/install.md makes it."""
    records = sandbox.layout.records
    was = records.stat()
    subprocess.run(["chgrp", GROUP, str(records)], check=True)
    records.chmod(0o3777)
    work.chmod(0o755)
    cluster = Cluster(sandbox, work, build_training(work / "planned", SOURCE))
    try:
        yield cluster
    finally:
        for planned in cluster.jobs.values():
            sandbox.run(["scancel", str(planned.job)])
        with contextlib.suppress(AssertionError):
            cluster.wait(limit_s=30)
        os.chown(records, was.st_uid, was.st_gid)
        records.chmod(was.st_mode & 0o7777)


def slow_job(cluster: Cluster, key: str, user: str) -> None:
    """Two nodes; iterations FROM to TO are slow. It runs alone: what else was slow would be true, too."""
    script = f"srun --greyhound=observe @ {ITERATIONS} {USUAL_MS} {FROM} {TO} {FACTOR * 100:.0f}"
    options = ("-N2", "--ntasks-per-node=1", "--gres=gpu:1", "--comment=mine; my own")
    planned = cluster.submit(key, user, script, *options, slow=True)
    until(lambda: planned.iterations() >= ITERATIONS - 5, f"the end of {key}", 90, 0.3)


def check_complete(cluster: Cluster, report: dict[str, object]) -> None:
    """Every job and every run of it is there, with its user, state and name."""
    for planned in cluster.jobs.values():
        rows = cluster.rows(planned, report)
        assert len(rows) == planned.rows + planned.attempts - 1, (planned, rows)
        assert {row["user"] for row in rows} == {planned.user}
        assert [row["state"] for row in rows][-1] == planned.state, (planned, rows)
        assert [row["restart"] for row in rows] == ([0] * planned.rows if planned.rows > 1 else [*range(len(rows))])
        assert planned.name is None or {row["name"] for row in rows} == {planned.name}
        if planned.watched:
            assert any(row["monitored"] for row in rows), (planned, rows)
        else:
            assert all(not row["monitored"] and row["why_not"] for row in rows), (planned, rows)
        assert not any(row["fail_slows"] for row in rows) or planned.slow, (planned, rows)


def check_truth(planned: Planned, row: dict[str, object]) -> None:
    """Onset, slowdown and duration of its one fail-slow against what the training itself saw."""
    ends_s = planned.ends_s()
    took_s = [after - before for before, after in pairwise(ends_s)]
    slowdown = median(took_s[FROM : TO - 2]) / median(took_s[FROM - 30 : FROM - 2])
    duration_s = ends_s[TO - 1] - ends_s[FROM - 1]
    episodes = row["episodes"]
    assert isinstance(episodes, list)
    (episode,) = episodes
    onset_s = epoch_s(str(episode["onset_time"]))
    onset = sum(end_s < onset_s for end_s in ends_s)
    print(f"true {FROM}, {slowdown:.3f}x, {duration_s:.2f} s; reported {onset} ({episode['onset']}), "
          f"{episode['slowdown']:.3f}x, {episode['duration_s']:.2f} s")  # fmt: skip
    assert abs(onset - FROM) <= 5
    assert abs(episode["slowdown"] / slowdown - 1) <= 0.1
    assert abs(episode["duration_s"] / duration_s - 1) <= 0.1
    lost_s = duration_s * (1 - 1 / slowdown)
    assert abs(float(str(row["lost_s"])) / lost_s - 1) <= 0.2
    assert row["gpus"] == 2
    assert abs(float(str(row["gpu_hours_lost"])) - float(str(row["lost_s"])) * 2 / 3600) < 1e-4


def epoch_s(text: str) -> float:
    """Seconds since the epoch of a report's time."""
    return datetime.fromisoformat(text).timestamp()


def check_forms(cluster: Cluster, report: dict[str, object]) -> None:
    """The table and CSV hold the same rows as JSON, and no foreign text breaks them."""
    rows = report["rows"]
    assert isinstance(rows, list)
    read = list(csv.DictReader(io.StringIO(cluster.report("--format=csv"))))
    assert [(row["job"], row["restart"], row["name"]) for row in read] == [
        (row["job"], str(row["restart"]), row["name"]) for row in rows
    ]
    table = cluster.report()
    lines = [line for line in table.splitlines() if re.match(r"\d", line)]
    assert len(lines) == len(rows) + 1  # the totals
    assert lines[-1].startswith(f"{len({row['raw_job'] for row in rows})} jobs, {len(rows)} runs: ")


def check_views(cluster: Cluster) -> None:
    """A member of the operators' group sees all records, a stranger nobody's, a user their own."""
    whole = json.loads(cluster.report("--format=json", user=OPERATOR, groups=(GROUP,)))
    check_complete(cluster, whole)
    stranger = json.loads(cluster.report("--format=json", user=STRANGER))
    assert not any(row["monitored"] for row in stranger["rows"])
    for user in sorted({planned.user for planned in cluster.jobs.values()} - {"root"}):
        done = cluster.greyhound("report", "--since=now-1hours", "--format=json", user=user)
        assert done.returncode == 0, done.stderr
        rows = json.loads(done.stdout)["rows"]
        assert {row["user"] for row in rows} == {user}
        theirs = [planned for planned in cluster.jobs.values() if planned.user == user]
        assert all(cluster.rows(planned, {"rows": rows}) for planned in theirs)
        watched = [planned for planned in theirs if planned.watched]
        assert all(any(r["monitored"] for r in cluster.rows(planned, {"rows": rows})) for planned in watched)


def read_report(cluster: Cluster) -> dict[str, object]:
    """As root, as JSON."""
    found: dict[str, object] = json.loads(cluster.report("--format=json"))
    return found
