"""From the ranks' results to one verdict: what passed, what it costs, and what can't be said. Pure but for `load`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from greyhound.detect.paired import Difference, difference

Result = Mapping[str, Any]
_MISSING = "no result: see the ranks' output above"


@dataclass(frozen=True)
class Line:
    """One check: its name, whether it passed, and the figure or the difference in words."""

    name: str
    passed: bool
    text: str


def load(folder: Path, run: str) -> list[Result]:
    """The ranks' results of one run ("on" or "off"), by rank; what can't be read isn't there."""
    found = []
    for path in folder.glob(f"{run}.*.json"):
        try:
            found.append(json.loads(path.read_text()))
        except (OSError, ValueError):
            continue
    return sorted(found, key=lambda result: int(result["rank"]))


def judge(on: Sequence[Result], off: Sequence[Result]) -> list[Line]:
    """All checks. A rank without a result fails the first of them, whatever the others say."""
    if not on or not off or len(on) != on[0]["world_size"] or len(off) != off[0]["world_size"]:
        wanted = next((result["world_size"] for result in [*on, *off]), "?")
        seen = f"{len(on)} ranks with and {len(off)} without the hook of {wanted}"
        return [Line("all ranks ran", False, f"{seen}; {_MISSING}")]
    lines = [Line("all ranks ran", True, f"{len(on)} with and {len(off)} without the hook")]
    lines.append(_results(off))
    lines.append(_calls(on))
    lines += [_losses(on, off, kind) for kind in ("ddp", "fsdp2")]
    lines.append(_graph(on))
    lines += [_iteration_cost(on), _call_cost(on)]
    return lines


def _first(texts: Sequence[str]) -> str:
    more = f" (and {len(texts) - 1} more)" if len(texts) > 1 else ""
    return f"{texts[0]}{more}"


def _results(off: Sequence[Result]) -> Line:
    """Wrong sums without the hook are the installation's own."""
    bad = [f"rank {r['rank']}: {text}" for r in off for text in r["calls"]["wrong_results"]]
    bad += [f"rank {r['rank']}: graph replays gave a wrong sum" for r in off if not r["graph"]["ok"]]
    return Line("results right without the hook", not bad, _first(bad) if bad else f"{len(off)} ranks")


def _calls(on: Sequence[Result]) -> Line:
    bad = [
        f"rank {r['rank']}: {text}"
        for r in on
        for key in ("wrong_results", "differing_records")
        for text in r["calls"][key]
    ]
    made = sum(int(r["calls"]["calls"]) for r in on)
    return Line("records equal the calls made", not bad, _first(bad) if bad else f"{made} calls of {len(on)} ranks")


def _losses(on: Sequence[Result], off: Sequence[Result], kind: str) -> Line:
    name = f"{kind}: losses identical with and without"
    for with_hook, without in zip(on, off, strict=True):
        if with_hook[kind]["losses"] != without[kind]["losses"]:
            return Line(name, False, f"rank {with_hook['rank']}: they differ")
        if not with_hook[kind]["ok"]:
            return Line(name, False, f"rank {with_hook['rank']}: its iterations show different calls, or none")
    steps, calls = len(on[0][kind]["losses"]), on[0][kind]["calls_an_iteration"]
    return Line(name, True, f"{steps} iterations, {calls} calls in each")


def _graph(on: Sequence[Result]) -> Line:
    name = "graph capture untouched"
    skipped = [r["graph"]["skipped"] for r in on if "skipped" in r["graph"]]
    if len(skipped) == len(on):
        return Line(name, True, f"not run: {skipped[0]}")
    if skipped:
        return Line(name, False, f"{len(skipped)} of {len(on)} ranks didn't run it: {skipped[0]}")
    bad = [f"rank {r['rank']}: replays gave a wrong sum" for r in on if not r["graph"]["ok"]]
    # What isn't seen isn't counted, and a pause would look for a cut among wrong counts.
    bad += [
        f"rank {r['rank']}: no {what} seen" for r in on for what in ("captured", "launches") if not r["graph"][what]
    ]
    seen = on[0]["graph"]
    text = f"{seen.get('captured', 0)} calls captured, {seen.get('launches', 0)} launches seen"
    return Line(name, not bad, _first(bad) if bad else text)


def _slowest(on: Sequence[Result], work: str, side: str) -> list[float]:
    """Seconds by window: the slowest rank's, as all wait for it."""
    return [max(times) for times in zip(*(r["cost"][work][side] for r in on), strict=True)]


def _difference(on: Sequence[Result], work: str) -> Difference:
    return difference(_slowest(on, work, "off_s"), _slowest(on, work, "on_s"))


def _iteration_cost(on: Sequence[Result]) -> Line:
    """Fails only where the hook costs more than 1 % beyond doubt: noise is no proof of either."""
    found = _difference(on, "iteration")
    text = f"{found.mean:+.2%} [{found.low:+.2%}, {found.high:+.2%}], {found.pairs} pairs of windows"
    clear = "" if found.is_clear else "; no difference that this measurement can tell"
    return Line("cost in iteration time", found.low <= 0.01, text + clear)


def _call_cost(on: Sequence[Result]) -> Line:
    found = _difference(on, "call")
    call_ns = median(_slowest(on, "call", "off_s")) * 1e9
    text = (
        f"{found.mean * call_ns:+.0f} ns [{found.low * call_ns:+.0f}, {found.high * call_ns:+.0f}] of {call_ns:.0f} ns"
    )
    return Line("cost of a call", found.low * call_ns <= 2000, text)


def passed(lines: Sequence[Line]) -> bool:
    """Whether a certificate may be written."""
    return all(line.passed for line in lines)
