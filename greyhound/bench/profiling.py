"""What profiling costs a training: windows with and without it in turn, python -m greyhound.bench.profiling [PAIRS].

One training on two stand-in GPUs, tensor-parallel (many small calls, which is where brackets cost most), watched as
usual. In half of the windows the rings' profile words ask for timings of all calls; pairs in the order drawn. Then the
budget is set below what the training would take, and the brackets that the hook really makes are counted.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from greyhound.bench.output import Measured, report
from greyhound.control.events import read_events
from greyhound.control.names import SHM
from greyhound.control.profile_run import BUDGET
from greyhound.detect.paired import difference
from greyhound.trace.ring import Ring

_PAIRS = 40
_WINDOW_S = 2.0
_EDGE_S = 0.2  # after a change, until every rank has made its next call
_RANKS = 2
_START_S = 90.0
_FIRST_PROFILE_S = 45.0  # the master's own, which must not fall into our windows
_MOST = 0.01
_TIGHT = 0.25  # of the brackets that the training would take


class BenchError(RuntimeError):
    """The training didn't do what was awaited."""


@dataclass(frozen=True)
class Window:
    """Median seconds of the iterations wholly within it (some are outliers), and brackets/s of the busiest rank."""

    iteration_s: float
    brackets_per_s: float


class Training:
    """The training, its rings and its own log."""

    def __init__(self, folder: Path, pid: int) -> None:
        self._log = folder / "training.jsonl"
        self._events = folder / f"local-{pid}" / "0.0" / "events.jsonl"
        self._step = f"greyhound-{os.getuid()}-local-{pid}."
        self._epoch = 0
        self._rings: list[Ring] = []

    def await_calm(self) -> None:
        """Until all ranks have rings and the master's own first profile is over."""
        _until(lambda: self._log.exists() and len(self._ends_s()) > 20, _START_S, "the training's first iterations")
        self._rings = [Ring.open(path) for path in sorted(SHM.glob(f"{self._step}*/ring.*"))]
        if len(self._rings) != _RANKS:
            raise BenchError(f"{len(self._rings)} rings of {_RANKS} ranks")
        _until(lambda: any(event["kind"] == "profile" for event in read_events(self._events)), _FIRST_PROFILE_S, "")

    def close(self) -> None:
        for ring in self._rings:
            ring.close()

    def _ends_s(self) -> list[float]:
        text = self._log.read_text()
        return [json.loads(line)["end_ns"] / 1e9 for line in text[: text.rfind("\n") + 1].splitlines()]

    def window(self, budget: int) -> Window:
        """A window with this budget of brackets a second and rank (0: no profiling)."""
        self._epoch = self._epoch % 60_000 + 1
        for ring in self._rings:
            ring.set_profile(budget, epoch=self._epoch)
        time.sleep(_EDGE_S)
        begin_s, made = time.monotonic(), [ring.profile_counts.made for ring in self._rings]
        time.sleep(_WINDOW_S)
        end_s, made_now = time.monotonic(), [ring.profile_counts.made for ring in self._rings]
        for ring in self._rings:
            ring.set_profile(0)
        ends_s = np.array([end for end in self._ends_s() if begin_s <= end <= end_s])
        if len(ends_s) < 3:
            raise BenchError(f"{len(ends_s)} iterations in {_WINDOW_S:g} s")
        brackets = max(now - before for now, before in zip(made_now, made, strict=True))
        return Window(float(np.median(np.diff(ends_s))), brackets / (end_s - begin_s))


def _until(test: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Poll `test`; BenchError where it doesn't hold in time and `what` says what was awaited."""
    until_s = time.monotonic() + timeout_s
    while not test():
        if time.monotonic() > until_s:
            if what:
                raise BenchError(f"waited {timeout_s:.0f} s for {what}")
            return
        time.sleep(0.2)


@contextmanager
def training() -> Iterator[Training]:
    """A watched training that is stopped at the end."""
    with tempfile.TemporaryDirectory(prefix="greyhound-bench-") as name:
        folder = Path(name)
        launch = [sys.executable, "-m", "greyhound", "launch", "-n", str(_RANKS), "--standin", "--greyhound"]
        train = [sys.executable, "-m", "greyhound.sandbox.train", "--tp", str(_RANKS), "--steps", "100000"]
        train += [
            "--layers",
            "2",
            "--layer-ms",
            "2",
            "--micro-batches",
            "8",
            "--json-log",
            str(folder / "training.jsonl"),
        ]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        with subprocess.Popen(
            [*launch, f"observe,record_dir={folder}", "--", *train], env=environment, stdout=subprocess.DEVNULL
        ) as process:
            found = Training(folder, process.pid)
            try:
                yield found
            finally:
                found.close()
                process.terminate()
                process.wait(30)


def run_pairs(job: Training, count: int) -> tuple[list[Window], list[Window]]:
    """Windows without and with profiling, pair by pair."""
    order = random.Random(7)
    without: list[Window] = []
    under: list[Window] = []
    for _ in range(count):
        for profiled in order.sample((True, False), 2):
            (under if profiled else without).append(job.window(BUDGET if profiled else 0))
    return without, under


def cost(without: Sequence[Window], under: Sequence[Window]) -> Measured:
    """The difference with its interval; the target is for what can be told apart from noise."""
    found = difference([one.iteration_s for one in without], [one.iteration_s for one in under])
    mean_ms = 1e3 * sum(one.iteration_s for one in without) / len(without)
    text = (
        f"profiling, {found.pairs} pairs of windows of {_WINDOW_S:g} s: {mean_ms:.1f} ms an iteration without, "
        f"difference {found.mean:+.2%} [{found.low:+.2%}, {found.high:+.2%}]; least difference that the interval allows"
    )
    return Measured(text, found.low, "of the iteration time", _MOST, "less")


def measure(count: int) -> list[Measured]:
    """Cost, brackets against the budget, and brackets against a budget that is too small for all calls."""
    with training() as job:
        job.await_calm()
        without, under = run_pairs(job, count)
        rate = max(one.brackets_per_s for one in under)
        tight = max(1, round(_TIGHT * min(rate, BUDGET)))
        held = job.window(tight).brackets_per_s
    return [
        cost(without, under),
        Measured(f"brackets of the busiest rank, budget {BUDGET}", rate, "a second", BUDGET, "less"),
        Measured(f"brackets where the calls need {rate:.0f} a second", held, "a second", tight, "less"),
    ]


if __name__ == "__main__":
    report("profiling", measure(int(sys.argv[1]) if len(sys.argv) > 1 else _PAIRS))
