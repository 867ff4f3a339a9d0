"""Kills processes of ours at random moments of running steps; what the training says must be what it always says."""

import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import psutil

from tests.endings.bed import SHM, Bed, Step, of_directory

# How likely each is the next: with a waiter or node process its node is done with, a Redis is started again.
OURS = {"greyhound_waiter": 2, "greyhound.control.node": 1, "greyhound.control.master": 2, "redis-server": 6}
MEAN_GAP_S = 0.25


def name_of(process: psutil.Process) -> str:
    """Which of OURS it is; "" for none of them, or one that is gone."""
    with contextlib.suppress(psutil.Error):
        words = process.cmdline()
        head = os.path.basename(words[0]) if words else ""
        return next((name for name in OURS if name in (*words[1:4], head)), "")
    return ""


class Killer:
    """Kills one of ours after another while a job runs; the moments are drawn from `seed`."""

    def __init__(self, job: int, seed: int) -> None:
        self._prefix = str(SHM / f"greyhound-{os.getuid()}-{job}.")
        self._random = random.Random(seed)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.killed: Counter[str] = Counter()

    def _run(self) -> None:
        while not self._over.wait(self._random.expovariate(1 / MEAN_GAP_S)):
            victims = [(process, name) for process in of_directory(self._prefix) if (name := name_of(process))]
            if victims:
                [(process, name)] = self._random.choices(victims, [OURS[name] for _, name in victims])
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGKILL)
                    self.killed[name] += 1

    def __enter__(self) -> "Killer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


class Small:
    """The training of train.c: some seconds of it, and a little before it in which the waiters wait."""

    name = "train.c: two ranks, data-parallel"
    iterations = 400

    def start(self, bed: Bed, watched: bool) -> Step:
        return bed.srun(watched, iterations=self.iterations, wrapper="sleep 0.3; ")

    def losses(self, step: Step) -> list[str]:
        return step.losses().splitlines()


class Training(Protocol):
    """What is trained while the monitoring is killed, always to the same losses, which are all different."""

    name: str
    iterations: int

    def start(self, bed: Bed, watched: bool) -> Step:
        """Hand it in."""
        ...

    def losses(self, step: Step) -> list[str]:
        """One an iteration, every bit of it."""
        ...


def under_fire(bed: Bed, training: Training, seed: int, expected: list[str]) -> Counter[str]:
    """One step whose monitoring is killed piece by piece; what was killed. AssertionError where the step noticed."""
    step = training.start(bed, True)
    with Killer(step.find_job(), seed) as killer:
        code = step.wait(300)
    assert (code, training.losses(step)) == (0, expected), step.errors
    step.assert_nothing_left()
    return killer.killed


def undisturbed(bed: Bed, training: Training) -> list[str]:
    """The losses of the same step without us."""
    step = training.start(bed, False)
    assert step.wait(300) == 0, step.errors
    losses = training.losses(step)
    assert len(set(losses)) == training.iterations
    return losses


def campaign(
    bed: Bed, training: Training, at_once: int, seed: int, kills: int, most_s: float = 600.0
) -> tuple[Counter[str], int]:
    """Steps until so many were killed, or for so long: what, and in how many steps."""
    expected = undisturbed(bed, training)
    end_s = time.monotonic() + most_s
    killed: Counter[str] = Counter()
    steps = 0
    with ThreadPoolExecutor(at_once) as pool:
        while killed.total() < kills and time.monotonic() < end_s:
            seeds = range(seed + steps, seed + steps + at_once)
            for found in pool.map(lambda one: under_fire(bed, training, one, expected), seeds):
                killed += found
            steps += at_once
    assert bed.bad_nodes() == []
    return killed, steps
