"""The master's side of fail-stops: who stands, for whom the others wait, and when it is over."""

from dataclasses import dataclass
from typing import Any

from greyhound.control.events import Component, Emit, utc
from greyhound.control.job import Job
from greyhound.control.stand_message import Stand, StandingRow
from greyhound.control.states import State
from greyhound.localize.failstop import Stopped, patience_s, stopped

PERIOD_S = 5.0
MOST_RANKS = 65_536
WAITING_SHOWN = 64
_STATES = (State.TRACKING, State.SUSPECT, State.WAITING)


@dataclass(frozen=True)
class _Still:
    node: int
    row: StandingRow
    told_s: float
    still_s: float  # when it was told

    def for_s(self, mono_s: float) -> float:
        return self.still_s + mono_s - self.told_s


class FailStops:
    """One fail-stop at a time: the rank that most wait for."""

    def __init__(self, job: Job, emit: Emit) -> None:
        self._job = job
        self._emit = emit
        self._still: dict[str, _Still] = {}
        self._stopped: Stopped | None = None
        self._longest_pause_s = 0.0
        self._due_s = 0.0

    def take(self, node: int, stand: Stand, now_s: float, mono_s: float) -> None:
        """What a node tells; `now_s` wall clock."""
        for row in stand.still:
            if len(self._still) < MOST_RANKS:
                still_s = min(max(now_s - row.since_ns / 1e9, 0.0), 60.0)  # clocks of nodes may differ by minutes
                self._still[f"{node}:{row.key}"] = _Still(node, row, mono_s, still_s)
        for key in stand.moved:
            self._moves(f"{node}:{key}", now_s, mono_s)

    def _moves(self, key: str, now_s: float, mono_s: float) -> None:
        still = self._still.pop(key, None)
        if still is not None and self._stopped is None:
            self._longest_pause_s = max(self._longest_pause_s, still.for_s(mono_s))
        current = self._stopped
        if current is not None and key == f"{current.node}:{current.key}" and still is not None:
            still_s = still.for_s(mono_s)
            self._longest_pause_s = max(self._longest_pause_s, still_s)
            self._over(current, "goes on after", still_s, now_s)

    def step(self, now_s: float, mono_s: float) -> None:
        """Once a round."""
        if not self._still or mono_s < self._due_s:
            return
        self._due_s = mono_s + PERIOD_S
        samples = self._job.samples
        if not any(key in samples and samples[key].alive for key in self._still):
            self._forget({key for key in self._still if key not in samples}, mono_s, now_s)
            return  # nobody waits
        if self._stopped is not None or self._job.machine.state not in _STATES:
            return
        ranks = [one.row.standing(one.node, one.for_s(mono_s), mono_s - one.told_s) for one in self._still.values()]
        found = stopped(ranks, patience_s(self._job.iteration_s, self._longest_pause_s))
        if found:
            self._say(max(found, key=lambda row: (len(row.waiting), row.since_s)), len(found), now_s)

    def _forget(self, gone: set[str], mono_s: float, now_s: float) -> None:
        """Ranks that ended stand for good: an elastic job's would be blamed long after others took their place."""
        current = self._stopped
        own = f"{current.node}:{current.key}" if current is not None else ""
        if current is not None and own in gone:
            self._over(current, "ended, and nobody waits for it any more, after", self._still[own].for_s(mono_s), now_s)
        self._still = {key: still for key, still in self._still.items() if key not in gone}

    def _say(self, found: Stopped, count: int, now_s: float) -> None:
        self._stopped = found
        node = self._job.nodes.get(found.node)
        name = node.name if node else f"node {found.node}"
        more = f" ({count - 1} more ranks stand as it does)" if count > 1 else ""
        data: dict[str, Any] = {
            "over": False,
            "node": name,
            "rank": found.rank,
            "key": found.key,
            "op": found.op,
            "seq": found.seq,
            "communicator": f"{found.comm:016x}",
            "inside": found.inside,
            "since": utc(now_s - found.since_s),
            "seconds": round(found.since_s, 1),
            "waiting": list(found.waiting[:WAITING_SHOWN]),
            "waiting_count": len(found.waiting),
            "last": found.last,
            "text": f"fail-stop on {name}: {found.text}{more}",
        }
        self._emit("fail_stop", now_s, data, None, self._job.iteration, Component("rank", name, rank=found.rank))
        self._job.fail_stop = data

    def _over(self, found: Stopped, what: str, still_s: float, now_s: float) -> None:
        self._stopped = None
        text = f"rank {found.rank} {what} {still_s:.0f} s: no fail-stop any more"
        data = {"over": True, "rank": found.rank, "key": found.key, "seconds": round(still_s, 1), "text": text}
        self._emit("fail_stop", now_s, data, None, self._job.iteration)
        self._job.fail_stop = None
