"""The iteration time read from the calls is the one that the training measures, for every layout."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from greyhound.control import step_lock
from greyhound.detect.period import Iteration, IterationClock
from greyhound.sandbox.truth import TrainedIteration
from greyhound.trace.records import symbols, top_level
from greyhound.trace.ring import Ring
from tests.e2e.training import read_log, spawn_ranks

pytestmark = pytest.mark.training
STEPS = 20
# Without gradients to reduce nothing but repetition tells an iteration from a part of one: it is awaited longer.
STEPS_OF = {"TP4": 32}
LAYOUTS = {
    "TP2 DP2 PP2": (8, ["--tp", "2", "--pp", "2"]),
    "TP2 PP2": (4, ["--tp", "2", "--pp", "2"]),
    "DP4": (4, []),
    "TP4": (4, ["--tp", "4"]),
    "DP4, distributed optimizer": (4, ["--distributed-optimizer"]),
}


@pytest.fixture
def step_directory() -> Iterator[Path]:
    """Locked, as by a launch: rings in a directory that nobody keeps go with their processes."""
    with tempfile.TemporaryDirectory(prefix="greyhound-test-", dir="/dev/shm") as folder:
        kept = step_lock.lock(Path(folder))
        assert kept is not None
        yield Path(folder)
        os.close(kept)


def iterations_of(path: Path) -> list[Iteration]:
    """All iterations in a ring, as the analyzer would find them in pieces of about 100 ms."""
    ring = Ring.open(path)
    records, lost = ring.read()
    ring.close()
    assert lost == 0
    calls = top_level(records)
    clock = IterationClock()
    found: list[Iteration] = []
    for start in range(0, len(calls), 50):
        piece = calls[start : start + 50]
        found += clock.push(symbols(piece), piece["t_ns"].astype("int64"))
    return found


def same_iterations(found: list[Iteration], log: list[TrainedIteration]) -> tuple[list[float], list[float]]:
    """Pair what was found with what was printed: the last ones end in the training's last iterations."""
    count = min(len(found), len(log)) - 1
    return [i.seconds for i in found[-count:]], [row.time_s for row in log[-count:]]


def layouts() -> list[pytest.ParameterSet]:
    """One of them in `make test`, all in `make scenarios`."""
    short = ("TP2 DP2 PP2",)
    return [pytest.param(name, marks=[] if name in short else [pytest.mark.scenario]) for name in LAYOUTS]


@pytest.mark.parametrize("layout", layouts())
def test_iteration_time_is_the_training_s_own(layout: str, native: Path, step_directory: Path, tmp_path: Path) -> None:
    count, train = LAYOUTS[layout]
    steps = STEPS_OF.get(layout, STEPS)
    hook = {"LD_PRELOAD": str(native / "libgreyhound_hook.so"), "GREYHOUND_DIR": str(step_directory)}
    codes = spawn_ranks(count, tmp_path / "log", [*train, "--steps", str(steps)], {**os.environ, **hook})
    assert codes == [0] * count
    log = read_log(tmp_path / "log")
    rings = sorted(step_directory.glob("ring.*"))
    assert len(rings) == count
    for path in rings:
        estimated, printed = same_iterations(iterations_of(path), log)
        assert len(estimated) >= steps - 4
        # Within 1 % (make bench); a busy machine may hold up a call or the print at either end.
        assert sum(estimated) / sum(printed) == pytest.approx(1.0, abs=0.03)
