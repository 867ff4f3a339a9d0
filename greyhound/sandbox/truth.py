"""What the training itself printed, and how Greyhound's events compare with it: pure functions."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median

HEALTHY_WINDOW = 20  # iterations before the injection that count as healthy


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
