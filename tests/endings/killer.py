"""Kills processes of ours at random moments of running steps; what the training says must be what it always says."""

import contextlib
import itertools
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import psutil

from tests.endings.bed import SHM, Bed, Step, of_directory

# How likely each is the next to be sought: with a waiter or node process its node is done with, a Redis is started
# again. Most moments find none of the kind, as the later ones take a while to be there, and the kill is left out.
OURS = {"greyhound_waiter": 2, "greyhound.control.node": 1, "greyhound.control.master": 1, "redis-server": 8}
MEAN_GAP_S = 0.18


def name_of(process: psutil.Process) -> str:
    """Which of OURS it is; "" for none of them, or one that is gone."""
    with contextlib.suppress(psutil.Error):
        words = process.cmdline()
        head = os.path.basename(words[0]) if words else ""
        return next((name for name in OURS if name in (*words[1:4], head)), "")
    return ""


class Killer:
    """Kills one of ours after another while a job runs; the moments are drawn from `seed`."""

    def __init__(self, job: int, seed: int, sought: Mapping[str, float]) -> None:
        """`sought`: how likely each kind is the next."""
        self._sought = sought
        self._prefix = str(SHM / f"greyhound-{os.getuid()}-{job}.")
        self._random = random.Random(seed)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.killed: Counter[str] = Counter()

    def _run(self) -> None:
        while not self._over.wait(self._random.expovariate(1 / MEAN_GAP_S)):
            [sought] = self._random.choices(list(self._sought), list(self._sought.values()))
            victims = [process for process in of_directory(self._prefix) if name_of(process) == sought]
            if victims:
                with contextlib.suppress(psutil.NoSuchProcess):
                    self._random.choice(victims).send_signal(signal.SIGKILL)
                    self.killed[sought] += 1

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
    sought: Mapping[str, float] = OURS

    def start(self, bed: Bed, watched: bool) -> Step:
        return bed.srun(watched, iterations=self.iterations, wrapper="sleep 0.3; ")

    def losses(self, step: Step) -> list[str]:
        return step.losses().splitlines()


class Training(Protocol):
    """What is trained while the monitoring is killed, always to the same losses, which are all different."""

    name: str
    iterations: int
    sought: Mapping[str, float]

    def start(self, bed: Bed, watched: bool) -> Step:
        """Hand it in."""
        ...

    def losses(self, step: Step) -> list[str]:
        """One an iteration, every bit of it."""
        ...


def under_fire(bed: Bed, training: Training, seed: int, expected: list[str]) -> Counter[str]:
    """One step whose monitoring is killed piece by piece; what was killed. AssertionError where the step noticed."""
    step = training.start(bed, True)
    with Killer(step.find_job(), seed, training.sought) as killer:
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
    seeds = itertools.count(seed)
    found: list[Counter[str]] = []

    def fire(_: int) -> None:
        while sum(killed.total() for killed in found) < kills and time.monotonic() < end_s:
            found.append(under_fire(bed, training, next(seeds), expected))

    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(fire, range(at_once)))
    assert bed.bad_nodes() == []
    return sum(found, Counter()), len(found)
