"""What the training itself printed, and how Greyhound's events compare with it: pure functions."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median

import numpy as np
from numpy.typing import NDArray

FIRST_SETTLED = 4
PAUSE = 1.2  # an iteration of this many times the usual time holds something else, too: an evaluation is a third of one
HEALTHY_WINDOW = 20  # iterations before the injection that count as healthy
SAME_ITERATION = 0.75  # of an iteration: a pause may lie before or after the call at which a found one ends


@dataclass(frozen=True)
class TrainedIteration:
    """One line of the training's own log; `end_unix_s` is seconds since the epoch."""

    iteration: int
    loss_hex: str
    time_s: float
    end_unix_s: float


@dataclass(frozen=True)
class Injection:
    """When a component was made slow and when it was healed, in seconds since the epoch."""

    start_unix_s: float
    end_unix_s: float


@dataclass(frozen=True)
class Comparison:
    """One episode against the truth; iterations are the training's own numbers."""

    injected_at: int
    reported_at: int
    healed_at: int
    recovered_at: int
    slowdown_true: float
    slowdown_reported: float

    @property
    def delay(self) -> int:
        """Iterations that ended between the injection and the report."""
        return self.reported_at - self.injected_at

    @property
    def slowdown_error(self) -> float:
        return abs(self.slowdown_reported / self.slowdown_true - 1.0)


def parse_training_log(lines: Iterable[str], monotonic_offset_s: float) -> list[TrainedIteration]:
    """Read the trainer's JSON lines; `monotonic_offset_s` = time.time() - time.monotonic() on the same host."""
    rows = [json.loads(line) for line in lines if line.strip()]
    return [
        TrainedIteration(
            int(r["iteration"]), str(r["loss_hex"]), float(r["time_s"]), int(r["end_ns"]) / 1e9 + monotonic_offset_s
        )
        for r in rows
    ]


def iteration_at(log: Sequence[TrainedIteration], unix_s: float) -> int:
    """Return the iteration that was running at `unix_s` (the last one plus one after the end)."""
    for row in log:
        if row.end_unix_s >= unix_s:
            return row.iteration
    return log[-1].iteration + 1


def median_time_s(log: Sequence[TrainedIteration], first: int, last: int) -> float:
    """Median iteration time over the iterations first..last, both included."""
    times = [r.time_s for r in log if first <= r.iteration <= last]
    if not times:
        raise ValueError(f"the training log has no iteration between {first} and {last}")
    return median(times)


def event_unix_s(event: dict[str, object]) -> float:
    return datetime.fromisoformat(str(event["time"]).replace("Z", "+00:00")).timestamp()


def reported_slowdown(event: dict[str, object]) -> float:
    """Slow over healthy iteration time of a `suspect` or `recovered` event."""
    data = event["data"]
    assert isinstance(data, dict)
    return float(data["slow_s"]) / float(data["healthy_s"])


def true_slowdown(log: Sequence[TrainedIteration], injection: Injection) -> float:
    """Median of the iterations wholly inside the injection over the median of those just before it."""
    start = iteration_at(log, injection.start_unix_s)
    end = iteration_at(log, injection.end_unix_s)
    return median_time_s(log, start + 1, end - 1) / median_time_s(log, start - HEALTHY_WINDOW, start - 1)


def compare(
    log: Sequence[TrainedIteration], injection: Injection, opened: dict[str, object], closed: dict[str, object]
) -> Comparison:
    """Set an episode's `suspect` and `recovered` events against the training's own log."""
    return Comparison(
        injected_at=iteration_at(log, injection.start_unix_s),
        reported_at=iteration_at(log, event_unix_s(opened)),
        healed_at=iteration_at(log, injection.end_unix_s),
        recovered_at=iteration_at(log, event_unix_s(closed)),
        slowdown_true=true_slowdown(log, injection),
        slowdown_reported=reported_slowdown(opened),
    )


@dataclass(frozen=True)
class FoundIteration:
    """An iteration read from a rank's calls: its number, its end in seconds since the epoch, and how long it took."""

    index: int
    end_unix_s: float
    seconds: float


def _one_count(found: Sequence[FoundIteration]) -> list[FoundIteration]:
    """From the last time on that the numbers began (they begin again when the period proves to be longer)."""
    restarts = [i for i in range(1, len(found)) if found[i].index <= found[i - 1].index]
    return list(found[restarts[-1] if restarts else 0 :])


def _places(rows: Sequence[FoundIteration], log: Sequence[TrainedIteration]) -> NDArray[np.float64]:
    """How many of the training's iterations had ended at the end of each found one, in fractions, less its number."""
    at = np.interp([row.end_unix_s for row in rows], [r.end_unix_s for r in log], [r.iteration for r in log])
    return np.asarray(at - np.array([row.index for row in rows]), dtype=np.float64)


def counted_alike(found: Sequence[FoundIteration], log: Sequence[TrainedIteration]) -> bool:
    """Whether each iteration found is the training's next one, for half of the log at least."""
    rows = _one_count(found)
    if len(rows) < len(log) // 2:
        return False
    places = _places(rows, log)
    return bool(np.all(np.abs(places - np.median(places)) <= SAME_ITERATION))


def iteration_time_error(found: Sequence[FoundIteration], log: Sequence[TrainedIteration], before: int) -> float:
    """Share by which the iterations found are off the trained ones in sum, until the trained iteration `before`.

    Iterations with a pause (an evaluation, a checkpoint) and those beside them are left out: a found iteration may end
    in the middle of a trained one, and then the pause belongs to another one of its numbers.
    """
    rows = _one_count(found)
    if not rows:
        return float("inf")
    offset = round(float(np.median(_places(rows, log))))
    found_s = {row.index + offset: row.seconds for row in rows}
    trained_s = {r.iteration: r.time_s for r in log if FIRST_SETTLED <= r.iteration < before}
    longest_s = PAUSE * median(trained_s.values())
    paused = {n for n, time_s in trained_s.items() if max(time_s, found_s.get(n, longest_s)) >= longest_s}
    kept = [n for n in trained_s if not paused & {n - 1, n, n + 1}]
    total_s = sum(trained_s[n] for n in kept)
    return abs(sum(found_s[n] for n in kept) / total_s - 1.0) if kept else float("inf")
