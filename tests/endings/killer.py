"""Kills processes of ours at random moments of running steps; what the training says must be what it always says."""

import contextlib
import os
import random
import signal
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import psutil

from tests.endings.bed import SHM, Bed, Step, of_directory

OURS = ("greyhound_waiter", "greyhound.control.node", "greyhound.control.master", "redis-server")
ITERATIONS, MILLISECONDS = 300, 10
MEAN_GAP_S = 0.5


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
                process, name = self._random.choice(victims)
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGKILL)
                    self.killed[name] += 1

    def __enter__(self) -> "Killer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def start(bed: Bed, watched: bool) -> Step:
    return bed.srun(watched, iterations=ITERATIONS, milliseconds=MILLISECONDS)


def under_fire(bed: Bed, seed: int, expected: str) -> Counter[str]:
    """One step whose monitoring is killed piece by piece; what was killed. AssertionError where the step noticed."""
    step = start(bed, True)
    with Killer(step.find_job(), seed) as killer:
        code = step.wait()
    assert (code, step.losses()) == (0, expected), step.errors
    step.assert_nothing_left()
    return killer.killed


def undisturbed(bed: Bed) -> str:
    """The losses of the same step without us."""
    step = start(bed, False)
    assert step.wait() == 0, step.errors
    return step.losses()


def campaign(bed: Bed, kills: int, at_once: int, seed: int) -> tuple[Counter[str], int]:
    """Steps until so many were killed: what, and in how many steps."""
    expected = undisturbed(bed)
    assert len(set(expected.splitlines())) == ITERATIONS
    killed: Counter[str] = Counter()
    steps = 0
    with ThreadPoolExecutor(at_once) as pool:
        while killed.total() < kills:
            seeds = range(seed + steps, seed + steps + at_once)
            for found in pool.map(lambda one: under_fire(bed, one, expected), seeds):
                killed += found
            steps += at_once
    assert bed.bad_nodes() == []
    return killed, steps
