"""One line of text an event, for people: the job's own output, `greyhound events`, scontrol notify."""

from collections.abc import Callable
from typing import Any

from greyhound.control.verdict_data import verdict_text

NODES_SHOWN = 10


def seconds(value: float) -> str:
    """`83 ms`, `1.24 s`, `4 min 10 s`."""
    if value < 1:
        return f"{value * 1000:.3g} ms"
    if value < 120:
        return f"{value:.3g} s"
    return f"{int(value // 60)} min {int(value % 60)} s"


def _ratio(data: dict[str, Any]) -> str:
    healthy, slow = float(data.get("healthy_s") or 0), float(data.get("slow_s") or 0)
    return f"{slow / healthy:.2f}x" if healthy > 0 else "n/a"


def _suspect(event: dict[str, Any]) -> str:
    data = event["data"]
    return (
        f"fail-slow {event['episode']} at iteration {event['iteration']}: {seconds(data['slow_s'])} an iteration "
        f"since {data['onset']}, healthy {seconds(data['healthy_s'])} ({_ratio(data)})"
    )


def _recovered(event: dict[str, Any]) -> str:
    data = event["data"]
    return (
        f"fail-slow {event['episode']} over at iteration {event['iteration']}: lasted {seconds(data['duration_s'])}, "
        f"{_ratio(data)}, {seconds(data['lost_s'])} lost"
    )


def episode_line(episode: dict[str, Any]) -> str:
    """One episode of a status or an `end` event."""
    last = "open" if episode.get("end") is None else episode["end"]
    duration = episode.get("duration_s")
    lasted = f", {seconds(duration)}" if duration is not None else ""
    cause = episode.get("cause")
    open_end = f" ({cause})" if cause and cause != "recovered" else ""
    return (
        f"{episode['id']}: iterations {episode['onset']}-{last}{lasted}, {_ratio(episode)}, "
        f"{seconds(episode['lost_s'])} lost{open_end}"
    )


def _end(event: dict[str, Any]) -> str:
    data = event["data"]
    if data.get("unmonitored"):
        return f"ended; unmonitored since iteration {data['iterations']}: {data['unmonitored']}"
    if not data.get("tracked"):
        few = f"{_count(data['ranks'], 'rank')} seen, none tracked"
        return f"ended, {few if data.get('ranks') else 'too soon to see a rank at work'}"
    # A signal for the whole step ends the watch as well, whatever the training makes of it.
    left = data.get("still_running")
    told = f" (told to stop while {_count(left, 'rank')} still ran; unmonitored from here on)" if left else ""
    count = len(data["episodes"]) + int(data.get("episodes_left_out") or 0)
    episodes = "no fail-slow" if not count else _count(count, "fail-slow")
    lost = f", {seconds(data['lost_s'])} lost" if count else ""
    if not data["healthy_s"] and not count:
        return f"ended after {data['iterations']} iterations{told}, not tracked long enough to know the healthy time"
    return f"ended after {data['iterations']} iterations{told}, healthy {seconds(data['healthy_s'])}, {episodes}{lost}"


def _count(number: object, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _start(event: dict[str, Any]) -> str:
    data = event["data"]
    return f"watching {event['job']}.{event['step']} ({data.get('mode')}), {_count(data.get('nodes'), 'node')}"


def _reason(event: dict[str, Any]) -> str:
    reason = event["data"].get("reason")
    return f"{event['kind'].replace('_', ' ')}" + (f": {reason}" if reason else "")


def _tracking(event: dict[str, Any]) -> str:
    return f"tracking {_count(event['data'].get('ranks'), 'rank')}"


def _regime(event: dict[str, Any]) -> str:
    return f"the work changed at iteration {event['iteration']}; the healthy time is learnt anew"


def _setting(event: dict[str, Any]) -> str:
    data = event["data"]
    return ("" if data["applied"] else "request refused: ") + str(data["text"])


def _ab(event: dict[str, Any]) -> str:
    data = event["data"]
    if data["phase"] == "start":
        return f"comparison begins: {data['windows']} windows of {seconds(data['window_s'])}"
    if data["phase"] == "end":
        return f"comparison over: {data['reason']}"
    kind = "muted" if data["muted"] else "recording"
    dropped = f", left out: {data['dropped']}" if data.get("dropped") else ""
    return f"window {data['window']} ({kind}): {seconds(data['iteration_s'])} an iteration{dropped}"


def minor_line(data: dict[str, Any]) -> str:
    """A minor level of a status, an `end` or a `minor` event."""
    return (
        f"since iteration {data['onset']}: {seconds(data['level_s'])} an iteration, healthy "
        f"{seconds(data['healthy_s'])} ({data['level']:.2f}x), below the threshold"
    )


def _trace(event: dict[str, Any]) -> str:
    nodes = event["data"]["nodes"]
    files, calls = sum(len(row["files"]) for row in nodes), sum(row["calls"] for row in nodes)
    failed = [f"{row['node']}: {row['why_not']}" for row in nodes if row["why_not"]]
    return f"{calls:,} calls recorded in {_count(files, 'file')}" + (f"; {'; '.join(failed[:5])}" if failed else "")


def runs_line(data: dict[str, Any]) -> str:
    """A comparison with earlier runs, of a status or a `runs` event."""
    new = ", ".join(data["new_nodes"][:NODES_SHOWN]) + (", ..." if len(data["new_nodes"]) > NODES_SHOWN else "")
    return (
        f"this run is {data['slowdown']:.2f}x slower than {_count(data['runs'], 'earlier run')} with the same calls "
        f"({seconds(data['healthy_s'])} an iteration, then {seconds(data['earlier_s'])}; last: job {data['last_job']})"
        + (f"; nodes that are new: {new}" if new else "")
    )


def _minor(event: dict[str, Any]) -> str:
    return f"minor level {minor_line(event['data'])}"


def _profile(event: dict[str, Any]) -> str:
    data = event["data"]
    problems = f"; {'; '.join(data['problems'][:3])}" if data["problems"] else ""
    untimed = data["ranks"] - data["timed"]
    hosts = f" ({untimed} without GPU times)" if untimed else ""
    iterations = _count(data["iterations"], "iteration")
    return f"{_count(data['ranks'], 'rank')} profiled for {seconds(data['seconds'])}{hosts}, {iterations}{problems}"


def _shares(data: dict[str, Any]) -> str:
    counts = data["microbatches"]
    return ", ".join(map(str, counts[:NODES_SHOWN])) + (", ..." if len(counts) > NODES_SHOWN else "")


def _plan(event: dict[str, Any]) -> str:
    data = event["data"]
    if data["strategy"] == "S1":
        why = "; ".join(f"{name} {reason}" for name, reason in data["passed_over"].items())
        return f"nothing is done about {event['episode']}: {why}"
    gain = data.get("gain")
    removes = f", to remove {gain:.0%} of the loss" if gain is not None else ""
    return f"plan {data['number']}: micro-batches {_shares(data)} by replica ({data['reason']}){removes}"


def _action(event: dict[str, Any]) -> str:
    return f"{event['data']['strategy']}: micro-batches are now {_shares(event['data'])} by replica"


_LINES: dict[str, Callable[[dict[str, Any]], str]] = {
    "setting": _setting,
    "ab": _ab,
    "minor": _minor,
    "trace": _trace,
    "profile": _profile,
    "verdict": lambda event: verdict_text(event["data"], event["episode"]),
    "plan": _plan,
    "action": _action,
    "undo": _action,
    "fail_stop": lambda event: str(event["data"]["text"]),
    "runs": lambda event: runs_line(event["data"]),
    "muted": lambda event: str(event["data"]["reason"]),
    "unmuted": lambda event: "recording again",
    "regime": _regime,
    "suspect": _suspect,
    "recovered": _recovered,
    "end": _end,
    "start": _start,
    "tracking": _tracking,
}
FOR_THE_USER = frozenset(
    {"suspect", "verdict", "action", "undo", "recovered", "fail_stop", "runs", "muted"}
    | {"unmuted", "unmonitored", "not_intercepted", "end"}
)


def event_line(event: dict[str, Any]) -> str:
    """What happened, without time and job; an event of another release gives its kind."""
    try:
        return _LINES.get(event["kind"], _reason)(event)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return str(event.get("kind"))
