"""The main job, end to end: `python -m greyhound.sandbox.demo` (make demo).

A private Slurm cluster comes up, a small GPT trains under `--greyhound=on`, one GPU is made slow and healed again;
what Greyhound says is then compared with what the training itself measured. Exit 0 if all is right, 1 with the reasons.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import click

from greyhound.sandbox import leftovers, truth
from greyhound.sandbox.cluster import Sandbox
from greyhound.sandbox.errors import SandboxError

REPOSITORY = Path(__file__).resolve().parents[2]
TEMPLATE = REPOSITORY / "sbatch_templates" / "megatron.sbatch"
HEALTHY_ITERATIONS = 26
SLOW_ITERATIONS = 12
MAX_DELAY = 5
MAX_SLOWDOWN_ERROR = 0.15
START_TIMEOUT_S = 180.0
STEP_TIMEOUT_S = 60.0
ALARMING = {"unmonitored", "not_intercepted", "fail_stop", "regime"}


class DemoError(RuntimeError):
    """The demo can't go on; the text says why."""


@dataclass
class Demo:
    """One run; `gpu` is slowed to `speed` of its normal speed."""

    sandbox: Sandbox
    gpu: str
    speed: float
    steps: int
    work: Path
    job: int = 0
    peak_bytes: int = 0
    started_s: float = field(default_factory=time.monotonic)

    @property
    def output(self) -> Path:
        return self.work / "job.out"

    @property
    def training_log(self) -> Path:
        return self.work / "training.jsonl"

    def say(self, text: str) -> None:
        click.echo(f"[{time.monotonic() - self.started_s:5.1f} s] {text}")

    def greyhound(self, *arguments: str) -> str:
        """Run a `greyhound` command as a user would, in the sandbox's environment; its standard output."""
        command = [sys.executable, "-m", "greyhound", *arguments]
        done = subprocess.run(command, env=self.sandbox.env(), capture_output=True, text=True, timeout=60, check=False)
        if done.returncode != 0:
            raise DemoError(f"`greyhound {' '.join(arguments)}` failed: {(done.stderr or done.stdout).strip()}")
        return done.stdout

    def submit(self) -> None:
        train = [
            sys.executable,
            "-m",
            "greyhound.sandbox.train",
            "--tp",
            "2",
            "--pp",
            "2",
            "--steps",
            str(self.steps),
            "--json-log",
            str(self.training_log),
        ]
        self.job = self.sandbox.submit(f"--output={self.output}", str(TEMPLATE), *train)
        self.say(f"sbatch megatron.sbatch: job {self.job}, TP2 DP2 PP2 on 4 nodes x 2 GPUs, --greyhound=on")

    def status(self) -> dict[str, object]:
        try:
            status: dict[str, object] = json.loads(self.greyhound("status", str(self.job), "--json"))
        except DemoError:
            return {}  # not there yet; the caller's time limit decides
        return status

    def events(self, kind: str) -> list[dict[str, object]]:
        lines = self.greyhound("events", str(self.job), "--json").splitlines()
        return [e for e in map(json.loads, lines) if e["kind"] == kind]

    def iteration(self) -> int:
        value = self.status().get("iteration")
        return int(value) if isinstance(value, int) else 0

    def wait_for(self, what: str, test: Callable[[], bool], timeout_s: float) -> None:
        """Poll `test`; DemoError if the job ends or the time is over before it holds."""
        deadline_s = time.monotonic() + timeout_s
        while not test():
            self.peak_bytes = max(self.peak_bytes, leftovers.memory_bytes(str(self.sandbox.layout.directory)))
            if self.sandbox.job_state(self.job) not in ("PENDING", "CONFIGURING", "RUNNING"):
                raise DemoError(f"the job ended while waiting for {what}; its last lines:\n{self.tail()}")
            if time.monotonic() > deadline_s:
                raise DemoError(f"waited {timeout_s:.0f} s for {what}; the job's last lines:\n{self.tail()}")
            time.sleep(0.5)

    def tail(self, count: int = 15) -> str:
        try:
            return "\n".join(self.output.read_text(errors="replace").splitlines()[-count:])
        except FileNotFoundError:
            return "(no output yet)"

    def watch_healthy(self) -> None:
        self.say("eight ranks import torch and megatron-core; this takes half a minute on two cores")
        self.wait_for("the first iterations", lambda: self.iteration() > 0, START_TIMEOUT_S)
        self.say("greyhound status: " + self.greyhound("status", str(self.job)).strip().replace("\n", "\n          "))
        self.wait_for("a healthy baseline", lambda: self.iteration() >= HEALTHY_ITERATIONS, START_TIMEOUT_S)

    def slow_down(self) -> truth.Injection:
        """Make the GPU slow until Greyhound has said so and some more iterations have passed, then heal it."""
        self.greyhound("inject", "gpu", self.gpu, "--speed", str(self.speed))
        start_s, first = time.time(), self.iteration()
        self.say(f"greyhound inject gpu {self.gpu} --speed {self.speed}: injected at iteration {first}")
        self.wait_for("the fail-slow to be reported", lambda: bool(self.events("suspect")), STEP_TIMEOUT_S)
        self.say(f"GREYHOUND: {self.greyhound('events', str(self.job)).strip().splitlines()[-1]}")
        self.wait_for("more slow iterations", lambda: self.iteration() >= first + SLOW_ITERATIONS, STEP_TIMEOUT_S)
        self.greyhound("inject", "heal")
        end_s = time.time()
        self.say(f"greyhound inject heal: {self.gpu} is healthy again")
        self.wait_for("the recovery to be reported", lambda: bool(self.events("recovered")), STEP_TIMEOUT_S)
        self.say(f"GREYHOUND: {self.greyhound('events', str(self.job)).strip().splitlines()[-1]}")
        return truth.Injection(start_s, end_s)

    def finish(self) -> None:
        state = self.sandbox.wait(self.job, timeout_s=START_TIMEOUT_S)
        self.say(f"the job ended: {state}")
        if state != "COMPLETED":
            raise DemoError(f"the job ended {state}; its last lines:\n{self.tail()}")


def problems(demo: Demo, result: truth.Comparison) -> list[str]:
    """What isn't as it must be; empty if all is right."""
    found = []
    if not 0 <= result.delay <= MAX_DELAY:
        found.append(f"reported {result.delay} iterations after the injection; at most {MAX_DELAY} are allowed")
    if result.slowdown_error > MAX_SLOWDOWN_ERROR:
        found.append(
            f"slowdown {result.slowdown_reported:.2f}x reported, {result.slowdown_true:.2f}x measured by the "
            f"training: more than {MAX_SLOWDOWN_ERROR:.0%} apart"
        )
    for kind in ("suspect", "recovered"):
        if (count := len(demo.events(kind))) != 1:
            found.append(f"{count} events of kind {kind}; exactly one was to be reported")
    found += [f"an event of kind {kind} that nothing caused" for kind in sorted(ALARMING) if demo.events(kind)]
    return found


def report(demo: Demo, result: truth.Comparison) -> None:
    rows = [
        ("injected at iteration", str(result.injected_at)),
        ("reported at iteration", f"{result.reported_at} ({result.delay} later)"),
        ("slowdown", f"{result.slowdown_reported:.2f}x reported, {result.slowdown_true:.2f}x measured by the training"),
        ("healed at iteration", str(result.healed_at)),
        ("recovery reported at", f"{result.recovered_at} ({result.recovered_at - result.healed_at} later)"),
        ("memory of it all", f"{demo.peak_bytes / 1e9:.1f} GB at its peak"),
        ("the job's record", demo.greyhound("events", str(demo.job)).strip().splitlines()[-1]),
    ]
    click.echo("\nReport")
    for name, value in rows:
        click.echo(f"  {name:<24}{value}")


def play(demo: Demo) -> list[str]:
    """The whole scenario on a sandbox that is up; returns the problems found."""
    offset_s = time.time() - time.monotonic()
    demo.submit()
    demo.watch_healthy()
    injection = demo.slow_down()
    demo.finish()
    log = truth.parse_training_log(demo.training_log.read_text().splitlines(), offset_s)
    result = truth.compare(log, injection, demo.events("suspect")[0], demo.events("recovered")[0])
    report(demo, result)
    return problems(demo, result)


def _run(name: str, gpu: str, speed: float, steps: int, work: Path) -> list[str]:
    click.echo("A private Slurm cluster: munge, MariaDB, slurmdbd, slurmctld and four slurmd, on loopback only")
    sandbox = Sandbox.up(name, say=lambda text: click.echo(f"  {text}"))
    try:
        found = play(Demo(sandbox, gpu, speed, steps, work))
    except DemoError as error:
        found = [str(error)]
    finally:
        sandbox.down()
    return found + list(leftovers.describe(sandbox))


@click.command()
@click.option("--name", default=f"demo-{os.getpid()}", help="the sandbox's name")
@click.option("--gpu", default="n2:1", show_default=True, help="the GPU that is made slow, NODE:INDEX")
@click.option("--speed", default=0.5, show_default=True, help="its speed meanwhile; 1 is healthy")
@click.option("--steps", default=62, show_default=True, help="iterations of the training")
def main(name: str, gpu: str, speed: float, steps: int) -> None:
    """Show the main job, end to end, and check it."""
    with tempfile.TemporaryDirectory(prefix="greyhound-demo-") as work:
        try:
            found = _run(name, gpu, speed, steps, Path(work))
        except SandboxError as error:
            found = [str(error)]
    for problem in found:
        click.echo(f"DEMO FAILED: {problem}", err=True)
    click.echo("" if found else "\nAll as it must be: one fail-slow injected, one found, nothing left behind.")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
