"""What the watch costs a whole training: pairs of runs with and without it, python -m greyhound.bench.training [PAIRS].

Each run is the sandbox's small DDP training on two ranks, by `greyhound launch`; within a pair the order is drawn. The
unwatched run is what a user would run instead: the same launch with --mode off, without hook, analyzer and Redis.
"""

import json
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from greyhound.bench.output import Measured, report
from greyhound.detect.paired import difference

_PAIRS = 10
_STEPS = 40
_SETTLED = 5  # iterations of warm-up
_TIMEOUT_S = 180
_MOST = 0.01  # the hook's budget: a hundredth of the iteration time (paper: 1.1 % at most)


def iteration_s(watched: bool, folder: Path) -> tuple[float, list[str]]:
    """One run: mean seconds of the settled iterations, and its losses in hex; RuntimeError if it fails."""
    log = folder / "log.jsonl"
    log.unlink(missing_ok=True)
    mode = "observe" if watched else "off"
    launch = [sys.executable, "-m", "greyhound", "launch", "-n", "2", "--standin", "--greyhound"]
    option = f"{mode},record_dir={folder}" if watched else mode
    train = [sys.executable, "-m", "greyhound.sandbox.train_ddp", "--steps", str(_STEPS), "--json-log", str(log)]
    done = subprocess.run(
        [*launch, option, "--", *train], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"the training ended with {done.returncode}: {done.stderr[-500:]}")
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    times_s = [float(row["time_s"]) for row in rows[_SETTLED:]]
    return statistics.fmean(times_s), [row["loss_hex"] for row in rows]


def run_pairs(count: int) -> tuple[list[float], list[float], bool]:
    """Seconds an iteration without and with, pair by pair, and whether all losses were the same."""
    order = random.Random(11)
    without, under, losses = [], [], set()
    with tempfile.TemporaryDirectory(prefix="greyhound-bench-") as folder:
        for _ in range(count):
            took = {}
            for watched in order.sample((True, False), 2):
                took[watched], seen = iteration_s(watched, Path(folder))
                losses.add(tuple(seen))
            without.append(took[False])
            under.append(took[True])
    return without, under, len(losses) == 1


def measure(count: int) -> list[Measured]:
    """The difference with its interval; the target is for what can be told apart from noise."""
    without, under, same = run_pairs(count)
    found = difference(without, under)
    mean_ms = statistics.fmean(without) * 1e3
    text = (
        f"training, {found.pairs} pairs of runs: {mean_ms:.1f} ms an iteration without, difference "
        f"{found.mean:+.2%} [{found.low:+.2%}, {found.high:+.2%}], losses {'identical' if same else 'DIFFERENT'}; "
        "least difference that the interval allows"
    )
    return [Measured(text, found.low, "of the iteration time", _MOST, "less")]


if __name__ == "__main__":
    report("training", measure(int(sys.argv[1]) if len(sys.argv) > 1 else _PAIRS))
