"""What a report over a site's jobs takes: python -m greyhound.bench.report [--jobs N].

Jobs and records are made up and written to a folder; sacct is played by `cat` of rows in its format. What is measured
is `greyhound report` itself, as a process: wall clock, CPU and peak memory (of all its processes together), on one core
and on as many as it takes; and how the time of a job grows with the number of jobs.
"""

import argparse
import contextlib
import functools
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO

import psutil

from greyhound.bench.output import Measured, report
from greyhound.control.events import utc
from greyhound.slurm.accounting import COLUMNS

_SIZES = (1_000, 10_000, 100_000)
_EVENTS_A_JOB = 10
_BEGAN_S = 1_790_000_000
_FIRST_JOB = 1000
_USERS = 40
_LOOK_S = 0.1
_LIMIT_S, _LIMIT_MIB, _LIMIT_GROWTH = 30.0, 1024.0, 1.3
# Plays sacct: the rows, with the delimiter that it is given in place of a tab.
_SACCT = """#!/bin/sh
for word in "$@"; do case "$word" in --delimiter=*) delimiter="${word#--delimiter=}" ;; esac; done
exec sed "s/\\t/$delimiter/g" "$ROWS"
"""
_RUNS = (("table", "job"), ("json", "job"), ("csv", "job"), ("table", "node"))


def _row(job: int, rng: random.Random, state: str, start_s: int) -> str:
    """One row of sacct's."""
    nodes = rng.choice((1, 2, 4, 8, 32))
    first = rng.randrange(1, 900)
    cells = {
        "JobIDRaw": f"{job}",
        "JobID": f"{job}",
        "User": f"user{job % _USERS:02}",
        "Account": "phys",
        "Partition": "gpu",
        "State": state,
        "ExitCode": "0:0",
        "Submit": f"{start_s - 60}",
        "Start": f"{start_s}",
        "End": f"{start_s + 3600}",
        "ElapsedRaw": "3600",
        "NNodes": f"{nodes}",
        "NodeList": f"n{first:03}" if nodes == 1 else f"n[{first:03}-{first + nodes - 1:03}]",
        "AllocTRES": f"billing={nodes * 8},cpu={nodes * 64},gres/gpu={nodes * 8},node={nodes}",
        "JobName": rng.choice(("train", "pretrain-70b", "größe|<b>", "eval" * 20)),
    }
    return "\t".join(cells.get(name, "") for name in COLUMNS) + "\n"


def _events(job: int, restart: int, start_s: int, rng: random.Random) -> Iterator[dict[str, object]]:
    """Ten events: three fail-slows with a cause among them, and the end."""
    at_s, rows = float(start_s), list[dict[str, object]]()
    yield {"kind": "start", "data": {"mode": "observe", "nodes": 4, "node_list": "n[001-004]"}}
    yield {"kind": "waiting", "data": {"reason": "no communicator made yet"}}
    yield {"kind": "tracking", "data": {"ranks": 32, "reason": None}}
    component = {"kind": "gpu", "node": f"n{rng.randrange(1, 900):03}", "bus": "0000:1b:00.0", "rank": 5, "peer": None}
    for number in (1, 2, 3):
        at_s += 600
        slow = {"onset": number * 100, "onset_time": utc(at_s), "reported": number * 100 + 4, "ranks": 32, "end": None}
        slow |= {"healthy_s": 5.0, "slow_s": 7.0, "slowdown": 1.4, "duration_s": None, "lost_s": 10.0, "cause": None}
        over = {**slow, "end": number * 100 + 40, "duration_s": 280.0, "lost_s": 80.0, "cause": "recovered"}
        rows.append({"id": f"e{number}", "open": False, **over})
        yield {"kind": "suspect", "episode": f"e{number}", "iteration": number * 100 + 4, "data": slow}
        if number < 3:
            yield {"kind": "recovered", "episode": f"e{number}", "iteration": number * 100 + 40, "data": over}
    yield {"kind": "verdict", "episode": "e1", "component": component, "data": _verdict(component)}
    totals = {"iterations": 700, "healthy_s": 5.0, "ranks": 32, "tracked": 32, "unmonitored": None, "episodes": rows}
    yield {"kind": "end", "iteration": 700, "data": totals}


def _verdict(component: dict[str, object]) -> dict[str, object]:
    """As the master says it (control/verdict_data.py)."""
    suspect = {"kind": "gpu", "nodes": [component["node"]], "ranks": [5], "rank_count": 1, "bus": component["bus"]}
    suspect |= {"peer": None, "ratio": 1.42, "share": 0.93, "confidence": 0.9}
    suspect |= {"reasons": ["own time 1.42 x that of 31 ranks with the same work", "waits least in its collectives"]}
    said = {"suspects": [suspect], "explained": 0.93, "abstained": None, "notes": []}
    return {"run": "0f3a", "reason": "suspect", **said}


def _write_record(folder: Path, job: int, restart: int, start_s: int, rng: random.Random) -> int:
    """Its number of events."""
    step = folder / str(job) / f"0.{restart}"
    step.mkdir(parents=True)
    lines = []
    for seq, event in enumerate(_events(job, restart, start_s, rng)):
        head = {
            "v": 1,
            "seq": seq,
            "time": utc(start_s + 300.0 * seq),
            "job": str(job),
            "step": "0",
            "restart": restart,
        }
        whole = {**head, "kind": "", "episode": None, "iteration": None, "component": None, **event}
        lines.append(json.dumps(whole, separators=(",", ":")) + "\n")
    (step / "events.jsonl").write_text("".join(lines))
    return len(lines)


def make(folder: Path, jobs: int, rows: IO[str]) -> int:
    """Rows and records of so many jobs, every tenth requeued once and every tenth without a record; events written."""
    rng, events = random.Random(1), 0
    for number in range(jobs):
        job, start_s = _FIRST_JOB + number, _BEGAN_S + 10 * number
        if number % 10 == 0:
            rows.write(_row(job, rng, "REQUEUED", start_s))
            events += _write_record(folder, job, 0, start_s, rng)
        restart = int(number % 10 == 0)
        rows.write(_row(job, rng, "COMPLETED", start_s + restart * 4000))
        if number % 10 != 1:
            events += _write_record(folder, job, restart, start_s + restart * 4000, rng)
    return events


@dataclass(frozen=True)
class Taken:
    """What one report took."""

    wall_s: float
    cpu_s: float
    peak_mib: float
    output_bytes: int


def _environment(work: Path) -> dict[str, str]:
    bin_folder = work / "bin"
    bin_folder.mkdir()
    (bin_folder / "sacct").write_text(_SACCT)
    (bin_folder / "sacct").chmod(0o755)
    return {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}", "ROWS": str(work / "rows")}


def _resident_mib(process: psutil.Process) -> float:
    """Of a process and its children; what they share is counted for each."""
    total = 0
    with contextlib.suppress(psutil.Error):
        for one in (process, *process.children(recursive=True)):
            total += one.memory_info().rss
    return total / 2**20


def run(work: Path, environment: dict[str, str], form: str, by: str, cores: set[int]) -> Taken:
    """One `greyhound report` as a process of its own."""
    out = work / "out"
    options = ["--all-users", "--since", "2026-01-01", "--format", form, "--by", by, "-o", str(out)]
    command = [sys.executable, "-m", "greyhound", "report", *options, "--record-dir", str(work / "records")]
    begin_s, peak_mib = time.perf_counter(), 0.0
    with tempfile.TemporaryFile() as said:
        process = psutil.Popen(
            command, env=environment, stderr=said, preexec_fn=functools.partial(os.sched_setaffinity, 0, cores)
        )
        while (ended := os.wait4(process.pid, os.WNOHANG))[0] == 0:
            peak_mib = max(peak_mib, _resident_mib(process))
            time.sleep(_LOOK_S)
        wall_s, used = time.perf_counter() - begin_s, ended[2]
        if ended[1]:
            said.seek(0)
            raise RuntimeError(f"greyhound report failed: {said.read().decode(errors='replace')}")
    return Taken(wall_s, used.ru_utime + used.ru_stime, peak_mib, out.stat().st_size)


def _figures(name: str, taken: Taken) -> list[Measured]:
    return [
        Measured(f"{name}: time", round(taken.wall_s, 2), "s", _LIMIT_S, "less"),
        Measured(f"{name}: CPU", round(taken.cpu_s, 2), "s", _LIMIT_S, "less"),
        Measured(f"{name}: peak memory", round(taken.peak_mib, 1), "MiB", _LIMIT_MIB, "less"),
    ]


def measure(jobs: int) -> Iterator[tuple[str, Taken, list[Measured]]]:
    """The reports over so many jobs, one after the other: which, what it took, and that as figures."""
    available = os.sched_getaffinity(0)
    with tempfile.TemporaryDirectory(prefix="greyhound-bench-", dir="/var/tmp") as folder:
        work = Path(folder)
        with (work / "rows").open("w") as rows:
            events = make(work / "records", jobs, rows)
        environment = _environment(work)
        for cores in [{min(available)}, available] if len(available) > 1 else [available]:
            for form, by in _RUNS:
                taken = run(work, environment, form, by, cores)
                kind = f"{form} by {by}, {len(cores)} core{'s' if len(cores) > 1 else ''}"
                yield kind, taken, _figures(f"{jobs:,} jobs, {events:,} events, {kind}", taken)


def growth(cpu_s: dict[int, float], kind: str) -> list[Measured]:
    """CPU of a job, of each size against the one before: 1.0 where twice the jobs take twice as long."""
    sizes = sorted(cpu_s)
    name = f"CPU a job at {{}} against {{}} jobs, {kind}"
    return [
        Measured(
            name.format(f"{more:,}", f"{few:,}"),
            round(cpu_s[more] / more * few / cpu_s[few], 2),
            "x",
            _LIMIT_GROWTH,
            "less",
        )
        for few, more in pairwise(sizes)
    ]


def main() -> None:
    """One size, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, help="one size alone")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the records go all the same
    cpu_s: dict[str, dict[int, float]] = {}
    for jobs in [given.jobs] if given.jobs else _SIZES:
        for kind, taken, figures in measure(jobs):
            report("report", figures)
            cpu_s.setdefault(kind, {})[jobs] = taken.cpu_s
    report("report", [figure for kind, by_size in cpu_s.items() for figure in growth(by_size, kind)])


if __name__ == "__main__":
    main()
