"""Plays one case on the sandbox: a GPU becomes slow and well again; what came of it, as a row of the table."""

import contextlib
import os
import re
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

import numpy as np
import torch

from greyhound.control.names import SHM
from greyhound.detect.period import IterationClock
from greyhound.sandbox import demo, truth
from greyhound.sandbox.cluster import Sandbox
from greyhound.sandbox.compatibility import Row
from greyhound.sandbox.page import bus_id
from greyhound.sandbox.watched import START_TIMEOUT_S, WatchedJob, WatchError
from greyhound.trace.records import symbols, top_level
from greyhound.trace.ring import Ring
from tests.e2e.training import free_port
from tests.scenarios.cases import Case

SLOW, AFTER = 12, 4  # iterations
POLL_NS = 100_000_000
SPEED = 0.5
PLAINLY_WRONG = 0.2
KEPT = Path(__file__).resolve().parents[2] / "build" / "scenarios"
ALARMS = ("unmonitored", "not_intercepted", "fail_stop", "regime")
LAUNCHED = re.compile(r"\b(local-\d+)\b \(")


def batch_script(case: Case, work: Path) -> str:
    """The case's own script, with the training's command in TRAIN."""
    path = work / "job.sh"
    train = " ".join(["python", "-m", f"greyhound.sandbox.{case.train[0]}", *training_options(case, work)])
    path.write_text(f'#!/bin/bash\nexport WORK="{work}"\nTRAIN=({train})\n{case.script}\n')
    return str(path)


def training_options(case: Case, work: Path) -> list[str]:
    """The training's arguments; a task of an array has a log of its own."""
    options = [*case.train[1:], "--steps", str(case.steps), "--layer-ms", str(case.layer_ms)]
    if "--checkpoint-every" in options:
        options += ["--checkpoint-dir", str(work / "checkpoints")]
    log = "training.$SLURM_ARRAY_TASK_ID.jsonl" if case.neighbour == "array" else "training.jsonl"
    return [*options, "--json-log", f"{work}/{log}"]


def arguments(case: Case, work: Path) -> tuple[str, ...]:
    """sbatch's arguments."""
    if case.template is None:
        return ("--greyhound=on", *case.sbatch, batch_script(case, work))
    train = ["-m", f"greyhound.sandbox.{case.train[0]}", *training_options(case, work)]
    python = [] if case.template.name == "torchrun.sbatch" else [sys.executable]
    return (*case.sbatch, str(case.template), *python, *train)


@dataclass
class ArrayTask(WatchedJob):
    """One task of a job array, of which another object is handed in."""

    task: int = 0

    @property
    def training_log(self) -> Path:
        return self.work / f"training.{self.task}.jsonl"


@contextlib.contextmanager
def environment(sandbox: Sandbox):
    """What the batch scripts inherit."""
    given = {
        "OMP_NUM_THREADS": "1",
        "MASTER_ADDR": "127.0.0.1",
        "GREYHOUND": f"on,record_dir={sandbox.layout.records}",
    }
    before = {name: os.environ.get(name) for name in [*given, "MASTER_PORT"]}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def hand_in(case: Case, job: WatchedJob) -> None:
    """Submit a job with a rendezvous port of its own, and wait until Greyhound's name for it is known."""
    with environment(job.sandbox):
        if case.neighbour != "array":
            os.environ["MASTER_PORT"] = str(free_port())
        if case.template is None:  # sbatch's option is asked, not the variable
            os.environ.pop("GREYHOUND")
        job.submit()
    if case.script == "torchrun.sbatch":
        job.wait_for("the launch to say its name", lambda: LAUNCHED.search(job.tail(100)) is not None)
        job.name = LAUNCHED.search(job.tail(100))[1]


def array_tasks(sandbox: Sandbox, job: int) -> dict[int, tuple[int, str]]:
    """Job id and node of each running task."""
    answer = sandbox.run(["squeue", "-h", "-t", "R", "-j", str(job), "-o", "%K %A %N"])
    return {int(task): (int(own), node) for task, own, node in (line.split() for line in answer.stdout.splitlines())}


def start(case: Case, sandbox: Sandbox, work: Path) -> tuple[WatchedJob, list[WatchedJob], str]:
    """The watched job, its neighbours, and the GPU to make slow."""
    if case.neighbour == "array":
        whole = ArrayTask(sandbox, case.steps, work, arguments(case, work), case.ranks)
        hand_in(case, whole)
        whole.wait_for("both tasks to run", lambda: len(array_tasks(sandbox, whole.job)) == 2, START_TIMEOUT_S)
        tasks = [
            replace(whole, job=own, name=str(own), task=task)
            for task, (own, _) in sorted(array_tasks(sandbox, whole.job).items())
        ]
        return tasks[0], tasks[1:], f"{array_tasks(sandbox, whole.job)[0][1]}:0"
    folders = [work, work / "twin"] if case.neighbour == "twin" else [work]
    jobs = []
    for folder in folders:
        folder.mkdir(exist_ok=True)
        jobs.append(WatchedJob(sandbox, case.steps, folder, arguments(case, folder), case.ranks))
        hand_in(case, jobs[-1])
    return jobs[0], jobs[1:], case.gpu


def rings(job: WatchedJob) -> list[np.ndarray]:
    """Each rank's calls so far."""
    calls = []
    for path in sorted(SHM.glob(f"greyhound-*-{job.name}.*/ring.*")):
        ring = Ring.open(path)
        calls.append(top_level(ring.read()[0]))
        ring.close()
    return calls


def keep_calls(job: WatchedJob, calls: list[np.ndarray], path: Path) -> None:
    """Write the ranks' calls and the ends of the training's iterations (ns), for whoever mends what was found."""
    ends_ns = np.array([(row.end_unix_s - job.clock_offset_s) * 1e9 for row in job.training()])
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, ends_ns=ends_ns, **{f"rank{i}": rank for i, rank in enumerate(calls)})


def check_period(job: WatchedJob, keep: Path) -> None:
    """WatchError, with the calls kept, where Greyhound's iteration is plainly not the training's."""
    seen_s = float(job.status()["healthy_s"])
    trained_s = median(row.time_s for row in job.training()[3:])
    if abs(seen_s / trained_s - 1.0) > PLAINLY_WRONG:
        keep_calls(job, rings(job), keep)
        raise WatchError(f"an iteration takes {trained_s:.3f} s, and {seen_s:.3f} s for Greyhound; calls in {keep}")


def find_iterations(job: WatchedJob, ranks: list[np.ndarray]) -> list[list[truth.FoundIteration]]:
    """The iterations in each rank's calls, found as an analyzer would find them."""
    found = []
    for calls in ranks:
        t_ns = calls["t_ns"].astype("int64")
        clock, rows = IterationClock(), []
        polls = (t_ns - t_ns[0]) // POLL_NS
        for at in sorted(set(polls.tolist())):
            piece = polls == at
            rows += clock.push(symbols(calls[piece]), t_ns[piece])
        found.append([truth.FoundIteration(r.index, r.end_ns / 1e9 + job.clock_offset_s, r.seconds) for r in rows])
    return found


@dataclass
class Played:
    """What was seen of one case."""

    injection: truth.Injection
    calls: list[np.ndarray]
    found: list[list[truth.FoundIteration]]
    notes: list[str] = field(default_factory=list)


def misnamed(job: WatchedJob, gpu: str) -> list[str]:
    """Whether anything but the slow GPU was named for the fail-slow; a launch knows its node by another name."""
    bus = bus_id(int(gpu.partition(":")[2]))
    said = demo.verdicts(job)
    if {(suspect["kind"], suspect["bus"]) for verdict in said for suspect in verdict["suspects"]} <= {("gpu", bus)}:
        return []
    return [f"GPU {bus} was slow, and Greyhound said: {'; '.join(verdict['text'] for verdict in said)}"]


def slow_down(job: WatchedJob, gpu: str, case: Case, keep: Path) -> Played:
    """After some healthy iterations make the GPU slow, and see it reported and recovered."""
    job.wait_for("all ranks to be tracked and their healthy time known", job.healthy, START_TIMEOUT_S)
    job.wait_for("a healthy stretch", lambda: len(job.training()) >= case.healthy, START_TIMEOUT_S)
    check_period(job, keep)
    start_s = job.inject("gpu", gpu, "--speed", str(SPEED))
    slowed = len(job.training())
    try:
        job.wait_for("the fail-slow to be reported", lambda: bool(job.events("suspect")))
        job.wait_for("enough slow iterations", lambda: len(job.training()) >= slowed + SLOW)
        if case.verdict:
            job.wait_for("the verdict", lambda: bool(demo.verdicts(job)), demo.VERDICT_TIMEOUT_S)
    finally:
        end_s = job.inject("gpu", gpu, "--speed", "1")
    job.wait_for("the recovery to be reported", lambda: bool(job.events("recovered")))
    job.wait_iterations(AFTER)
    calls = rings(job)
    notes = misnamed(job, gpu) if case.verdict else []
    return Played(truth.Injection(start_s, end_s), calls, find_iterations(job, calls), notes)


def count_others(jobs: list[WatchedJob]) -> int:
    """Episodes beyond the first job's one, and alarms of all."""
    suspects = sum(len(job.events("suspect")) for job in jobs)
    return suspects - 1 + sum(len(job.events(kind)) for job in jobs for kind in ALARMS)


def say_where_the_delay_went(job: WatchedJob, played: Played, injected_at: int, suspect: dict[str, object]) -> None:
    """How many iterations the tracker needed, and how much later its finding was an event."""
    ends = {r.index: r.end_unix_s for r in played.found[0]}
    certain_s = ends.get(int(str(suspect["iteration"])), 0.0)
    certain_at = truth.iteration_at(job.training(), certain_s - 0.05)
    later_s = truth.event_unix_s(suspect) - certain_s
    job.say(f"certain {certain_at - injected_at} iterations after the injection, told {later_s:.2f} s later")


def row(case: Case, jobs: list[WatchedJob], played: Played) -> Row:
    """The case's row of the table."""
    job, log = jobs[0], jobs[0].training()
    suspect = job.events("suspect")[0]
    result = truth.compare(log, played.injection, suspect, job.events("recovered")[0])
    say_where_the_delay_went(job, played, result.injected_at, suspect)
    # With the one that ends just after the last call: what was found in it is measured against its end, too.
    seen = log[: truth.iteration_at(log, max(rank[-1].end_unix_s for rank in played.found if rank))]
    notes = [] if len(played.found) == case.ranks else [f"{len(played.found)} rings of {case.ranks} ranks"]
    made = Row(
        key=case.key,
        group=case.group,
        title=case.title,
        nodes=case.nodes,
        ranks=case.ranks,
        period_exact=all(truth.counted_alike(rank, seen) for rank in played.found),
        iteration_time_error=max(truth.iteration_time_error(rank, log, result.injected_at) for rank in played.found),
        delay=result.delay,
        recovery_delay=result.recovered_at - result.healed_at,
        slowdown_reported=result.slowdown_reported,
        slowdown_true=result.slowdown_true,
        others=count_others(jobs),
        tried_with=f"Slurm {job.sandbox.state.release}, torch {torch.__version__}, Python {sys.version.split()[0]}",
        notes=[*notes, *played.notes],
    )
    if made.problems():
        keep_calls(job, played.calls, KEPT / f"{case.key}.npz")
    return made


def play(case: Case, sandbox: Sandbox, work: Path) -> Row:
    """The whole case; WatchError where it can't be played to its end."""
    begun_s = time.monotonic()
    job, neighbours, gpu = start(case, sandbox, work)
    jobs = [job, *neighbours]
    try:
        played = slow_down(job, gpu, case, KEPT / f"{case.key}.npz")
        for one in jobs:
            one.finish()
        job.say(f"{case.key}: played in {time.monotonic() - begun_s:.0f} s")
        return row(case, jobs, played)
    except WatchError as error:
        raise WatchError(f"{case.key}: {error}") from None
    finally:
        for one in jobs:
            sandbox.run(["scancel", str(one.job)])
        for one in jobs:
            sandbox.wait(one.job)
