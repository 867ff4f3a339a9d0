"""A training that runs in the sandbox under Greyhound, driven and asked as a user would: by commands."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import click

from greyhound.sandbox import leftovers, truth
from greyhound.sandbox.cluster import Sandbox

REPOSITORY = Path(__file__).resolve().parents[2]
TEMPLATE = REPOSITORY / "sbatch_templates" / "megatron.sbatch"
START_TIMEOUT_S = 240.0
STEP_TIMEOUT_S = 90.0
POLL_S = 0.4
WAITING_STATES = ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING")


class WatchError(RuntimeError):
    """The job or Greyhound didn't do what was awaited; the text says what and shows the job's last lines."""


@dataclass
class WatchedJob:
    """One job of `steps` iterations: `arguments` of sbatch, by default the template's TP2 DP2 PP2 on four nodes.

    `name` is how Greyhound knows it: the job's id, unless it is set (`local-PID` of a launch, a task of an array).
    """

    sandbox: Sandbox
    steps: int
    work: Path
    arguments: tuple[str, ...] = ()
    ranks: int = 8
    job: int = 0
    name: str = ""
    peak_bytes: int = 0
    started_s: float = field(default_factory=time.monotonic)
    clock_offset_s: float = field(default_factory=lambda: time.time() - time.monotonic())

    @property
    def output(self) -> Path:
        """What the job prints."""
        return self.work / "job.out"

    @property
    def training_log(self) -> Path:
        """What the training measured itself."""
        return self.work / "training.jsonl"

    def say(self, text: str) -> None:
        """One line of progress."""
        click.echo(f"[{time.monotonic() - self.started_s:5.1f} s] {text}")

    def greyhound(self, *arguments: str) -> str:
        """Run a `greyhound` command in the sandbox's environment; its standard output. Raises WatchError."""
        command = [sys.executable, "-m", "greyhound", *arguments]
        done = subprocess.run(command, env=self.sandbox.env(), capture_output=True, text=True, timeout=60, check=False)
        if done.returncode != 0:
            raise WatchError(f"`greyhound {' '.join(arguments)}` failed: {(done.stderr or done.stdout).strip()}")
        return done.stdout

    def submit(self) -> None:
        """Hand it in."""
        self.job = self.sandbox.submit(f"--output={self.output}", *(self.arguments or self._megatron()))
        self.name = self.name or str(self.job)

    def _megatron(self) -> list[str]:
        train = ["-m", "greyhound.sandbox.train", "--tp", "2", "--pp", "2"]
        options = ["--steps", str(self.steps), "--json-log", str(self.training_log)]
        return [str(TEMPLATE), sys.executable, *train, *options]

    def status(self) -> dict[str, object]:
        """`greyhound status JOB --json`, empty while there is none."""
        try:
            status: dict[str, object] = json.loads(self.greyhound("status", self.name, "--json"))
        except WatchError:
            return {}
        return status

    def iteration(self) -> int:
        """The iteration that Greyhound shows."""
        value = self.status().get("iteration")
        return value if isinstance(value, int) else 0

    def healthy(self) -> bool:
        """Whether Greyhound tracks all ranks and knows their healthy iteration time."""
        status = self.status()
        return status.get("tracked") == self.ranks and bool(status.get("healthy_s"))

    def events(self, kind: str) -> list[dict[str, object]]:
        """The job's events of one kind so far."""
        lines = self.greyhound("events", self.name, "--json").splitlines()
        return [event for event in map(json.loads, lines) if event["kind"] == kind]

    def last_event(self) -> str:
        """The newest event, as a user reads it."""
        return self.greyhound("events", self.name).strip().splitlines()[-1]

    def training(self) -> list[truth.TrainedIteration]:
        """The iterations that the training has logged so far."""
        try:
            text = self.training_log.read_text()
        except FileNotFoundError:
            return []
        return truth.parse_training_log(text[: text.rfind("\n") + 1].splitlines(), self.clock_offset_s)

    def wait_for(self, what: str, test: Callable[[], bool], timeout_s: float = STEP_TIMEOUT_S) -> None:
        """Poll `test`; WatchError if the job ends or the time is over before it holds."""
        deadline_s = time.monotonic() + timeout_s
        while not test():
            self.peak_bytes = max(self.peak_bytes, leftovers.memory_bytes(str(self.sandbox.layout.directory)))
            if self.sandbox.job_state(self.job) not in WAITING_STATES:
                raise WatchError(f"the job ended while waiting for {what}; its last lines:\n{self.tail()}")
            if time.monotonic() > deadline_s:
                raise WatchError(f"waited {timeout_s:.0f} s for {what}; the job's last lines:\n{self.tail()}")
            time.sleep(POLL_S)

    def wait_iterations(self, count: int) -> None:
        """Let the training do `count` more iterations."""
        target = len(self.training()) + count
        self.wait_for(f"{count} more iterations", lambda: len(self.training()) >= target)

    def inject(self, *fault: str) -> float:
        """`greyhound inject FAULT`; when (seconds since the epoch)."""
        self.greyhound("inject", *fault)
        return time.time()

    def tail(self, count: int = 15) -> str:
        """The job's last lines."""
        try:
            return "\n".join(self.output.read_text(errors="replace").splitlines()[-count:])
        except FileNotFoundError:
            return "(no output yet)"

    def finish(self) -> None:
        """Wait for the job's end; WatchError if it isn't COMPLETED."""
        state = self.sandbox.wait(self.job, timeout_s=START_TIMEOUT_S)
        self.say(f"the job ended: {state}")
        if state != "COMPLETED":
            raise WatchError(f"the job ended {state}; its last lines:\n{self.tail()}")
