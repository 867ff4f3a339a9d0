"""The main job, end to end: `python -m greyhound.sandbox.demo` (make demo).

A private Slurm cluster comes up, a small GPT trains under `--greyhound=on`, one GPU is made slow and healed again;
what Greyhound says is then compared with what the training itself measured. Exit 0 if all is right, 1 with the reasons.
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from greyhound.control.verdict_data import verdict_text
from greyhound.sandbox import interrupts, leftovers, truth
from greyhound.sandbox.cluster import Sandbox, running
from greyhound.sandbox.errors import SandboxError
from greyhound.sandbox.page import bus_id
from greyhound.sandbox.watched import START_TIMEOUT_S, WatchedJob, WatchError

SHOWN_ITERATIONS, HEALTHY_ITERATIONS = 16, 26
NAME_PREFIX = "demo-"
SLOW_ITERATIONS = 12
VERDICT_TIMEOUT_S = 90.0
NOBODY = "Greyhound named nobody for the fail-slow; on a busy machine it may abstain"
# What a busy machine may do to the figures, too: 4 or 5 iterations and 3 % are usual.
MAX_DELAY = 10
MAX_SLOWDOWN_ERROR = 0.25
ALARMING = {"unmonitored", "not_intercepted", "fail_stop", "regime"}


def watch_healthy(job: WatchedJob) -> None:
    """Wait until Greyhound knows how fast the healthy job is."""
    job.say("eight ranks import torch and megatron-core; this takes half a minute on two cores")
    job.wait_for("the first iterations", lambda: len(job.training()) >= SHOWN_ITERATIONS, START_TIMEOUT_S)
    job.wait_for("all ranks to be tracked and their healthy time known", job.healthy, START_TIMEOUT_S)
    job.say("greyhound status: " + job.greyhound("status", job.name).strip().replace("\n", "\n          "))
    job.wait_for("a healthy baseline", lambda: len(job.training()) >= HEALTHY_ITERATIONS, START_TIMEOUT_S)


def slow_down(job: WatchedJob, gpu: str, speed: float) -> truth.Injection:
    """Make the GPU slow until Greyhound has said so and some more iterations have passed, then heal it."""
    start_s = job.inject("gpu", gpu, "--speed", str(speed))
    job.say(f"greyhound inject gpu {gpu} --speed {speed}")
    job.wait_for("the fail-slow to be reported", lambda: bool(job.events("suspect")))
    job.say(f"GREYHOUND: {job.last_event()}")
    job.wait_iterations(SLOW_ITERATIONS)
    job.wait_for("the verdict", lambda: bool(verdicts(job)), VERDICT_TIMEOUT_S)
    job.say(f"GREYHOUND: {verdicts(job)[-1]['text']}")
    end_s = job.inject("heal")
    job.say(f"greyhound inject heal: {gpu} is healthy again")
    job.wait_for("the recovery to be reported", lambda: bool(job.events("recovered")))
    job.say(f"GREYHOUND: {job.last_event()}")
    return truth.Injection(start_s, end_s)


def verdicts(job: WatchedJob) -> list[dict[str, Any]]:
    """What was said of fail-slows so far: the verdicts' data, and their text."""
    return [
        {**event["data"], "text": verdict_text(event["data"], str(event["episode"]))}
        for event in job.events("verdict")
        if event["episode"] and isinstance(event["data"], dict)
    ]


def misnamed(job: WatchedJob, gpu: str) -> list[str]:
    """Whether the slow GPU was named for the fail-slow, and nothing else."""
    node, index = gpu.split(":")
    named = {(s["kind"], *s["nodes"], s["bus"]) for verdict in verdicts(job) for s in verdict["suspects"]}
    if named == {("gpu", node, bus_id(int(index)))}:
        return []
    if not named:
        return [NOBODY]
    said = "; ".join(verdict["text"] for verdict in verdicts(job))
    return [f"GPU {bus_id(int(index))} of {node} was slow, and Greyhound said: {said}"]


def problems(job: WatchedJob, result: truth.Comparison, gpu: str) -> list[str]:
    """What isn't as it must be; empty if all is right."""
    found = misnamed(job, gpu)
    if not 0 <= result.delay <= MAX_DELAY:
        found.append(f"reported {result.delay} iterations after the injection; at most {MAX_DELAY} are allowed")
    if result.slowdown_error > MAX_SLOWDOWN_ERROR:
        found.append(
            f"slowdown {result.slowdown_reported:.2f}x reported, {result.slowdown_true:.2f}x measured by the "
            f"training: more than {MAX_SLOWDOWN_ERROR:.0%} apart"
        )
    for kind in ("suspect", "recovered"):
        if (count := len(job.events(kind))) != 1:
            found.append(f"{count} events of kind {kind}; exactly one was to be reported")
    found += [f"an event of kind {kind} that nothing caused" for kind in sorted(ALARMING) if job.events(kind)]
    return found


def report(job: WatchedJob, result: truth.Comparison) -> None:
    """The short report that ends the run; iterations are the training's own."""
    rows = [
        ("injected in iteration", str(result.injected_at)),
        ("reported in iteration", f"{result.reported_at} ({result.delay} later)"),
        ("slowdown", f"{result.slowdown_reported:.2f}x reported, {result.slowdown_true:.2f}x measured by the training"),
        ("healed in iteration", str(result.healed_at)),
        ("recovery reported in", f"{result.recovered_at} ({result.recovered_at - result.healed_at} later)"),
        ("memory of it all", f"{job.peak_bytes / 1e9:.1f} GB at its peak"),
        ("the job's record", job.last_event()),
    ]
    click.echo("\nReport")
    for name, value in rows:
        click.echo(f"  {name:<24}{value}")


def play(job: WatchedJob, gpu: str, speed: float) -> list[str]:
    """The whole scenario on a sandbox that is up; returns the problems found."""
    job.submit()
    job.say(f"sbatch megatron.sbatch: job {job.job}, TP2 DP2 PP2 on 4 nodes x 2 GPUs, --greyhound=on")
    watch_healthy(job)
    injection = slow_down(job, gpu, speed)
    job.finish()
    result = truth.compare(job.training(), injection, job.events("suspect")[0], job.events("recovered")[0])
    report(job, result)
    return problems(job, result, gpu)


def _run(name: str, gpu: str, speed: float, steps: int, work: Path) -> list[str]:
    for other in running():
        if other.layout.name.startswith(NAME_PREFIX):
            click.echo(f"(an earlier demo was killed; `greyhound sandbox down --name {other.layout.name}` removes it)")
    click.echo("A private Slurm cluster: munge, MariaDB, slurmdbd, slurmctld and four slurmd, on loopback only")
    sandbox = Sandbox.up(name, say=lambda text: click.echo(f"  {text}"))
    try:
        found = play(WatchedJob(sandbox, steps, work), gpu, speed)
    except WatchError as error:
        found = [str(error)]
    finally:
        with interrupts.put_off(click.echo):
            sandbox.down()
    return found + list(leftovers.describe(sandbox))


@click.command()
@click.option("--name", default=f"{NAME_PREFIX}{os.getpid()}", help="the sandbox's name")
@click.option("--gpu", default="n2:1", show_default=True, help="the GPU that is made slow, NODE:INDEX")
@click.option("--speed", default=0.5, show_default=True, help="its speed meanwhile; 1 is healthy")
@click.option("--steps", default=62, show_default=True, help="iterations of the training")
def main(name: str, gpu: str, speed: float, steps: int) -> None:
    """Show the main job, end to end, and check it."""
    with interrupts.as_keyboard_interrupt(), tempfile.TemporaryDirectory(prefix="greyhound-demo-") as work:
        try:
            found = _run(name, gpu, speed, steps, Path(work))
        except SandboxError as error:
            found = [str(error)]
        except KeyboardInterrupt:
            found = ["interrupted; the cluster is down again"]
    for problem in found:
        click.echo(f"DEMO FAILED: {problem}", err=True)
    click.echo("" if found else "\nAll as it must be: one fail-slow injected, one found, nothing left behind.")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
