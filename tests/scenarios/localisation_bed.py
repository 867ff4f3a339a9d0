"""Plays the faults of one layout on one job after the other, and writes down what the user was told."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from greyhound.sandbox import truth
from greyhound.sandbox.cluster import Sandbox
from greyhound.sandbox.watched import START_TIMEOUT_S, TEMPLATE, WAITING_STATES, WatchedJob, WatchError
from tests.e2e.training import free_port
from tests.scenarios.driver import environment
from tests.scenarios.localisation_cases import Case, Layout

Event = dict[str, Any]
POLL_S, STATE_S = 0.3, 3.0
STEPS = 4000
SETTLED, APART = 26, 6  # iterations: before the first fault, and between two
CALM_S = 32.0  # so long after its profile a job without fail-slow is known to be healthy
REPORT_S, VERDICT_S, RECOVERY_S, START_VERDICT_S = 40.0, 75.0, 60.0, 300.0
MEGATRON_CHECKPOINTS = ("--checkpoint-every", "1", "--checkpoint-dir")


@dataclass
class Told:
    """What came of one fault. Times are seconds since the epoch, None where it didn't come."""

    injected_s: float
    slowdown: float = 1.0
    report: Event | None = None
    verdict: Event | None = None
    fail_stop: Event | None = None
    others: list[Event] = field(default_factory=list)


def arguments(layout: Layout, options: tuple[str, ...], work: Path) -> tuple[str, ...]:
    """sbatch's arguments: only watched, so that no mitigation hides a fault.

    Megatron's small job saves a shard after every iteration, so that storage can be slow.
    """
    train = [sys.executable, "-m", f"greyhound.sandbox.{layout.train[0]}", *layout.train[1:]]
    if layout.train[0] == "train":
        train += [*MEGATRON_CHECKPOINTS, str(work / "checkpoints")]
    train += ["--steps", str(STEPS), "--json-log", str(work / "training.jsonl"), *options]
    return ("--greyhound=observe", *layout.sbatch, str(TEMPLATE), *train)


class Bed:
    """One job, followed by `greyhound events JOB --follow`."""

    def __init__(self, sandbox: Sandbox, layout: Layout, options: tuple[str, ...], work: Path) -> None:
        self.layout = layout
        self.job = WatchedJob(sandbox, STEPS, work, arguments(layout, options, work), len(layout.gpus))
        self.submitted_s = 0.0
        self._followed = work / "events.jsonl"
        self._follower: subprocess.Popen[bytes] | None = None
        self._looked_s = 0.0

    def start(self) -> None:
        """Hand it in."""
        with environment(self.job.sandbox):
            os.environ["MASTER_PORT"] = str(free_port())
            self.job.submit()
        self.submitted_s = time.time()

    @contextlib.contextmanager
    def followed(self) -> Iterator[None]:
        """From the first iteration on the job's events are at hand; at the end the job is cancelled."""
        try:
            self.wait("the first iterations", lambda: len(self.job.training()) >= 2, START_TIMEOUT_S)
            self.wait("Greyhound to have a record of it", lambda: bool(self.job.status()), START_TIMEOUT_S)
            command = [sys.executable, "-m", "greyhound", "events", self.job.name, "--json", "--follow"]
            with (
                self._followed.open("w") as file,
                subprocess.Popen(
                    command, env=self.job.sandbox.env(), stdout=file, stderr=subprocess.DEVNULL
                ) as self._follower,
            ):
                try:
                    yield
                finally:
                    self._follower.terminate()
        finally:
            self.job.greyhound("inject", "heal")
            self.job.sandbox.run(["scancel", str(self.job.job)])
            self.job.sandbox.wait(self.job.job)

    def events(self, *kinds: str) -> list[Event]:
        """Events of some kinds so far."""
        text = self._followed.read_text() if self._followed.exists() else ""
        lines = text[: text.rfind("\n") + 1].splitlines()
        return [event for event in map(json.loads, lines) if event["kind"] in kinds]

    def wait(self, what: str, test: Callable[[], bool], timeout_s: float) -> None:
        """Poll `test`; WatchError where the job ends or the time is over before it holds."""
        until_s = time.monotonic() + timeout_s
        while not test():
            if self._follower is not None and self._follower.poll() is not None:
                raise WatchError(f"`greyhound events --follow` ended with {self._follower.returncode}")
            now_s = time.monotonic()
            if now_s - self._looked_s > STATE_S:
                self._looked_s = now_s
                if self.job.sandbox.job_state(self.job.job) not in WAITING_STATES:
                    raise WatchError(f"the job ended while waiting for {what}; its last lines:\n{self.job.tail()}")
            if now_s > until_s:
                raise WatchError(f"waited {timeout_s:.0f} s for {what}")
            time.sleep(POLL_S)

    def came(self, test: Callable[[], bool], timeout_s: float) -> bool:
        """Whether it holds in time."""
        try:
            self.wait("it", test, timeout_s)
        except WatchError as error:
            if not str(error).startswith("waited"):
                raise
            return False
        return True

    def settle(self) -> None:
        """Until a healthy profile was taken and believed."""
        self.wait("a healthy stretch", lambda: len(self.job.training()) >= SETTLED, START_TIMEOUT_S)
        self.wait("a profile of the healthy job", lambda: bool(self.events("profile")), 120.0)
        taken_s = truth.event_unix_s(self.events("profile")[0])
        self.wait("calm", lambda: time.time() > taken_s + CALM_S, CALM_S + 5.0)

    def _is_calm(self) -> bool:
        return len(self.events("recovered")) >= len(self.events("suspect"))

    def apart(self) -> None:
        """The fault before is over, and some healthy iterations have passed."""
        self.wait("the recovery", self._is_calm, RECOVERY_S)
        target = len(self.job.training()) + APART
        self.wait("healthy iterations", lambda: len(self.job.training()) >= target, START_TIMEOUT_S)

    # -- one fault ------------------------------------------------------------------------------------------

    def play(self, case: Case) -> Told:
        """Inject, wait for what the user is told, heal."""
        self.apart()
        seen = len(self.events("suspect", "verdict", "fail_stop"))
        done = len(self.job.training())
        told = Told(time.time())
        try:
            for fault in case.faults:
                self.job.greyhound("inject", *fault)
            told.injected_s = time.time()
            if case.reported:
                self._until_verdict(told, seen)
            else:
                self._watch(case, told, seen)
        finally:
            slow = self.job.training()[done + 1 :]
            self.job.greyhound("inject", "heal")
        healthy = self.job.training()[max(0, done - APART) : done]
        if slow and healthy:
            told.slowdown = median(row.time_s for row in slow) / median(row.time_s for row in healthy)
        return told

    def _since(self, seen: int, *kinds: str) -> list[Event]:
        return [event for event in self.events("suspect", "verdict", "fail_stop")[seen:] if event["kind"] in kinds]

    def _until_verdict(self, told: Told, seen: int) -> None:
        if not self.came(lambda: bool(self._since(seen, "suspect")), REPORT_S):
            return
        told.report = self._since(seen, "suspect")[0]
        episode = told.report["episode"]

        def verdicts() -> list[Event]:
            return [event for event in self._since(seen, "verdict") if event["episode"] == episode]

        if self.came(lambda: bool(verdicts()), VERDICT_S):
            told.verdict = verdicts()[0]
        told.fail_stop = next(iter(self._since(seen, "fail_stop")), None)

    def _watch(self, case: Case, told: Told, seen: int) -> None:
        """Nothing needs to be reported, or a fail-stop."""
        if not case.faults:
            self.ask(case.watch_s)
        wanted = ("fail_stop",) if case.hangs else ()
        self.came(lambda: bool(wanted and self._since(seen, *wanted)), case.watch_s if case.faults else 0.0)
        told.fail_stop = next(iter(self._since(seen, "fail_stop")), None)
        verdicts = self._since(seen, "verdict")
        told.verdict = next((event for event in verdicts if event["data"]["suspects"]), next(iter(verdicts), None))
        told.report = next(iter(self._since(seen, "suspect")), None)

    def ask(self, seconds: float) -> None:
        """Have the ranks profiled and judged as often as that time allows, as the job's owner may."""
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            self.job.greyhound("profile", self.job.name)
        time.sleep(1.0)  # until the events have come here, too

    def from_the_start(self, case: Case) -> Told:
        """A job that is slow (or ragged) from its first iteration on: its first verdict that names somebody."""
        told = Told(self.submitted_s)

        def naming() -> list[Event]:
            return [event for event in self.events("verdict") if event["data"]["suspects"]]

        if case.before:
            self.came(lambda: bool(naming()), START_VERDICT_S - (time.time() - self.submitted_s))
        else:
            self.settle()
            self.ask(case.watch_s)
        told.verdict = next(iter(naming() or self.events("verdict")), None)
        told.report = next(iter(self.events("suspect")), None)
        told.fail_stop = next(iter(self.events("fail_stop")), None)
        return told
