"""What the windows of `greyhound ab` say: the cost of recording as a share of the iteration time. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from greyhound.detect.paired import LEAST_PAIRS, Difference, difference

LEAST_SHARE = 0.5  # of a muted window's calls that must have passed muted


@dataclass(frozen=True)
class Comparison:
    """Seconds an iteration muted and recording, pair by pair; `cost` is None where there are too few pairs."""

    muted_s: tuple[float, ...]
    recording_s: tuple[float, ...]
    dropped: int
    why_dropped: tuple[str, ...]
    cost: Difference | None


def undiluted(window_s: float, share: float, recording_s: float) -> float:
    """Seconds of a wholly muted iteration, from a window in which only a `share` of the calls passed muted.

    The rest of it, at both edges, went at the pace of `recording_s`.
    """
    return recording_s + (window_s - recording_s) / share


def _why_not(window: Mapping[str, Any]) -> str:
    if window.get("dropped"):
        return str(window["dropped"])
    if window["muted"] and window["share"] < LEAST_SHARE:
        return "most of a muted window wasn't muted"
    return "" if window["iteration_s"] > 0 else "nothing was measured"


def compare(windows: Iterable[Mapping[str, Any]]) -> Comparison:
    """From the data of the events `ab` of phase `window` of one run; a pair counts where both its windows do."""
    by_number = {int(window["window"]): window for window in windows}
    muted_s, recording_s, whys, dropped = [], [], [], 0
    for first in sorted({number - number % 2 for number in by_number}):
        pair = [by_number[n] for n in (first, first + 1) if n in by_number]
        why = next(filter(None, map(_why_not, pair)), "")
        if len(pair) < 2 or why or pair[0]["muted"] == pair[1]["muted"]:
            dropped += 1
            whys += [why or "its other half is missing"]
            continue
        muted, recording = sorted(pair, key=lambda window: not window["muted"])
        recording_s.append(float(recording["iteration_s"]))
        muted_s.append(undiluted(float(muted["iteration_s"]), float(muted["share"]), recording_s[-1]))
    cost = difference(muted_s, recording_s) if len(muted_s) >= LEAST_PAIRS and min(muted_s) > 0 else None
    return Comparison(tuple(muted_s), tuple(recording_s), dropped, tuple(dict.fromkeys(whys)), cost)


def verdict(comparison: Comparison) -> str:
    """In one or two sentences."""
    pairs = len(comparison.muted_s)
    left_out = ""
    if comparison.dropped:
        left_out = f" {comparison.dropped} pairs were left out: {'; '.join(comparison.why_dropped)}."
    cost = comparison.cost
    if cost is None:
        return f"Only {pairs} pairs of windows: too few to say anything (at least {LEAST_PAIRS}).{left_out}"
    base_s = sum(comparison.muted_s) / pairs
    text = (
        f"Recording changes the iteration time by {100 * cost.mean:+.2f} % ({1e6 * cost.mean * base_s:+.0f} us), "
        f"95 % interval {100 * cost.low:+.2f} % to {100 * cost.high:+.2f} %, from {pairs} pairs of windows."
    )
    if not cost.is_clear:
        text += " The interval contains zero: no cost can be told from the job's own variation."
    return text + left_out
