"""Every way in which a step ends or something of ours dies under it: what is done to a step, watched or not."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.endings.bed import Bed, Step, kill, until

MEMORY = Path("/sys/fs/cgroup/memory")
NODE, MASTER, REDIS, WAITER = "greyhound.control.node", "greyhound.control.master", "redis-server", "greyhound_waiter"


@dataclass(frozen=True)
class Way:
    """One way: `begin` starts the step, `act` ends it (or lets it end); `waits_s` is what Slurm itself takes.

    `begun`: our processes are at work before it is ended. `said`: what the one line says that the user gets.
    """

    name: str
    act: Callable[[Step], None]
    begin: Callable[[Bed, bool], "contextlib.AbstractContextManager[Step]"]
    begun: bool = True
    said: str = ""
    measured: bool = True
    waits_s: float = 60.0


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@contextlib.contextmanager
def plain(bed: Bed, watched: bool, **how: object) -> Iterator[Step]:
    step = bed.srun(watched, **how)  # type: ignore[arg-type]
    try:
        yield step
    finally:
        bed.sandbox.run(["scancel", "--quiet", str(step.find_job())])
        kill(*step.pids)
        if step.process.poll() is None:
            step.process.kill()
            step.process.communicate()


@contextlib.contextmanager
def held(bed: Bed, watched: bool) -> Iterator[Step]:
    """No communicator is made before the waiters are dead."""
    with plain(bed, watched, files=["hold"]) as step:
        yield step


@contextlib.contextmanager
def with_a_minute(bed: Bed, watched: bool) -> Iterator[Step]:
    """Slow iterations, as many such steps run at once."""
    with plain(bed, watched, slurm=["--time=1"], milliseconds=50) as step:
        yield step


@contextlib.contextmanager
def in_little_memory(bed: Bed, watched: bool) -> Iterator[Step]:
    """The step's processes, ours and Slurm's included, in a memory cgroup as task/cgroup makes it: the real killer."""
    group = Path(tempfile.mkdtemp(prefix="greyhound-test-", dir=MEMORY))
    (group / "memory.limit_in_bytes").write_text(str(400 << 20))
    enter = f"for p in $PPID $(cat /proc/$PPID/task/*/children) $$; do echo $p > {group}/cgroup.procs; done 2>&-; "
    try:
        with plain(bed, watched, wrapper=enter, files=["hold"], more=["300"]) as step:
            yield step
        kills = dict(line.split() for line in (group / "memory.oom_control").read_text().splitlines())["oom_kill"]
        assert int(kills) > 0, "memory was enough"
    finally:
        until(lambda: _removed(group), "the end of the cgroup")


def _removed(group: Path) -> bool:
    with contextlib.suppress(OSError):
        group.rmdir()
    return not group.exists()


@contextlib.contextmanager
def on_a_small_disk(bed: Bed, watched: bool) -> Iterator[Step]:
    disk = Path(tempfile.mkdtemp(prefix="greyhound-disk-"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], check=True)
    try:
        with plain(bed, watched, option=f",record_dir={disk}") as step:
            step.disk = disk  # type: ignore[attr-defined]
            yield step
    finally:
        until(lambda: subprocess.run(["umount", disk], stderr=subprocess.DEVNULL).returncode == 0, "the disk is free")
        disk.rmdir()


def _let_go(step: Step) -> None:
    (step.folder / "hold").unlink()


def _fill(step: Step) -> None:
    disk = step.disk  # type: ignore[attr-defined]
    with contextlib.suppress(OSError), open(disk / "filler", "wb", buffering=0) as filler:
        while True:
            filler.write(b"x" * 4096)
    assert shutil.disk_usage(disk).free == 0
    time.sleep(0.5)
    step.enough()


def _killer(program: str, node: int = 0) -> Callable[[Step], None]:
    def act(step: Step) -> None:
        if step.watched:
            kill(step.one(program, node))
        time.sleep(0.5)
        step.enough()

    return act


def _kill_waiters(step: Step) -> None:
    if step.watched:
        kill(step.one(WAITER, 0), step.one(WAITER, 1))
    _let_go(step)
    step.enough()


def _kill_stepd(step: Step) -> None:
    stepd = _parent(step.pids[0])
    assert "slurmstepd" in Path(f"/proc/{stepd}/cmdline").read_text()
    kill(stepd)
    time.sleep(0.2)
    kill(*step.pids)  # nobody else ends them: Slurm's daemon for them is dead
    step.bed.sandbox.run(["scancel", str(step.find_job())])


def _cancel(*words: str) -> Callable[[Step], None]:
    def act(step: Step) -> None:
        step.bed.sandbox.run(["scancel", *(word.replace("JOB", str(step.find_job())) for word in words)])

    return act


WAYS = [
    Way("scancel of the step", _cancel("JOB.0"), plain),
    Way("scancel of the job", _cancel("JOB"), plain),
    Way("scancel --signal=KILL", _cancel("--signal=KILL", "JOB.0"), plain),
    Way("time limit", lambda step: None, with_a_minute, waits_s=180.0),
    Way("out of memory", _let_go, in_little_memory, begun=False),
    Way("kill -9 of the analyzer", _killer(NODE), plain, said="ended before the tasks"),
    Way("kill -9 of node 1's analyzer", _killer(NODE, 1), plain, said="node 1: the node process ended"),
    Way("kill -9 of the master", _killer(MASTER), plain, said="the master died: signal 9"),
    Way("kill -9 of Redis", _killer(REDIS), plain, said="redis-server died: signal 9"),
    Way("kill -9 of the waiters", _kill_waiters, held, begun=False),
    Way("kill -9 of a rank", lambda step: os.kill(step.pids[0], signal.SIGKILL), plain),
    Way("kill -9 of slurmstepd", _kill_stepd, plain, measured=False),
    Way("record disk full", _fill, on_a_small_disk),
]


def ready(way: Way, step: Step, followed: bool = True) -> None:
    """Until the step is where it may be ended: the tasks run and, if it is watched, they are seen, or even followed."""
    assert len(step.pids) == step.ranks
    if not (step.watched and way.begun):
        time.sleep(0.3)
    elif followed:
        step.wait_for_state("tracking", "suspect")
    else:
        step.wait_for_ranks()
