"""A node's part in profiling: has the hooks time calls on the GPU for some seconds, and makes the ranks' profiles.

A window ends here by this node's own clock, whatever happens to the master. The profiles are computed by a thread, so
that hundreds of ranks don't hold up the reading of the rings.
"""

import time
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Protocol

from greyhound.control.background import Background
from greyhound.control.fields import TEXT_LIMIT
from greyhound.control.profile_gather import Gathering
from greyhound.control.profile_message import MOST_CALLS, ProfileDone, ProfileOrder, in_messages
from greyhound.localize.from_records import NoProfile, RankFacts
from greyhound.localize.model import RankProfile

MOST_SECONDS = 60.0
MOST_LEAD_S = 10.0  # an order for later than that comes from another clock
DRAIN_S = 0.7  # timings are written some calls after their own
MOST_RECORDS = 2 << 20  # a node: 128 MiB
LEAST_RECORDS = 4096  # a rank, whatever their number
MOST_BUDGET, MOST_ONE_IN = 20_000, 0xFFFF
FINISH_S = 0.3
WHYS_SHOWN = 3

Evidence = Callable[[float, float], dict[str, Any]]
"""Begin and end of a window (wall clock s) -> what the node measured of its hardware and system, checked by `facts`."""


class Profiled(Protocol):
    """What profiling needs of a rank's watch."""

    @property
    def key(self) -> str: ...

    @property
    def closed(self) -> bool: ...

    def facts(self) -> RankFacts: ...

    def set_profile(self, budget: int, one_in: int, epoch: int) -> None: ...

    def gather_into(self, gathering: Gathering | None) -> None: ...


@dataclass
class _Rank:
    watch: Profiled
    facts: RankFacts
    gathering: Gathering


@dataclass
class _Window:
    """`end_s`: the hooks are told to stop; `begin_s` and it are monotonic, the ns wall clock."""

    order: ProfileOrder
    begin_s: float
    end_s: float
    ranks: list[_Rank] = field(default_factory=list)
    begun: bool = False
    timing: bool = False
    offset_ns: int = 0
    begin_ns: int = 0
    end_ns: int = 0


def _no_evidence(begin_s: float, end_s: float) -> dict[str, Any]:
    return {}


class ProfileNode:
    """At most one window at a time; `step` gives what is to be sent."""

    def __init__(self, evidence: Evidence = _no_evidence, most_records: int = MOST_RECORDS) -> None:
        """`evidence` is asked by a thread."""
        self._evidence = evidence
        self._most_records = most_records
        self._wanted: ProfileOrder | None = None
        self._window: _Window | None = None
        self._building: tuple[str, Background[list[ProfileDone]]] | None = None
        self._done: list[ProfileDone] = []
        self._seen: deque[str] = deque(maxlen=64)
        self._epoch = int(time.time()) & 0xFFFF

    def take(self, order: ProfileOrder) -> None:
        """An order; of several at once (what another Redis still holds) the last one counts."""
        if order.run not in self._seen:
            self._seen.append(order.run)
            self._wanted = order

    def step(self, now_s: float, watches: Collection[Profiled], muted: str) -> list[ProfileDone]:
        """After the rings were read: begin and end what is due at `now_s` (monotonic); the messages that are ready.

        `muted` says why nothing is recorded now.
        """
        if self._wanted is not None:
            order, self._wanted = self._wanted, None
            self._plan(order, now_s)
        if self._window is not None and muted:
            self.cancel(muted)
        if self._window is not None:
            self._follow(self._window, now_s, watches)
        return self._ready()

    def _plan(self, order: ProfileOrder, now_s: float) -> None:
        if self._window is not None or self._building is not None:
            self._refuse(order.run, "another profile is under way on this node")
            return
        lead_s = (order.start_ns - time.time_ns()) / 1e9
        # The wall clocks of two nodes may differ by minutes; then it begins at once.
        begin_s = now_s + (lead_s if 0 < lead_s <= MOST_LEAD_S else 0.0)
        self._window = _Window(order, begin_s, begin_s + min(max(order.seconds, 0.0), MOST_SECONDS))

    def _refuse(self, run: str, why: str) -> None:
        self._done += in_messages(run, (), why[:TEXT_LIMIT])

    def _follow(self, window: _Window, now_s: float, watches: Collection[Profiled]) -> None:
        if not window.begun and now_s >= window.begin_s:
            self._begin(window, now_s, watches)
        if window.timing and now_s >= window.end_s:
            self._stop_timing(window)
        if window.begun and now_s >= window.end_s + DRAIN_S:
            self._window = None
            self._let_go(window)
            self._building = window.order.run, Background("gh-profile", lambda: self._build(window))

    def _begin(self, window: _Window, now_s: float, watches: Collection[Profiled]) -> None:
        self._epoch = (self._epoch + 1) & 0xFFFF
        begin_ns = time.monotonic_ns()
        end_ns = begin_ns + int((window.end_s - now_s) * 1e9)
        window.begun = window.timing = True
        window.offset_ns = time.time_ns() - time.monotonic_ns()
        window.begin_ns, window.end_ns = begin_ns + window.offset_ns, end_ns + window.offset_ns
        most = max(LEAST_RECORDS, self._most_records // max(1, len(watches)))
        budget, one_in = _within(window.order.budget, MOST_BUDGET), _within(window.order.one_in, MOST_ONE_IN)
        for watch in watches:
            gathering = Gathering(begin_ns, end_ns, most)
            window.ranks.append(_Rank(watch, watch.facts(), gathering))
            watch.gather_into(gathering)
            watch.set_profile(budget, one_in, self._epoch)

    def _stop_timing(self, window: _Window) -> None:
        window.timing = False
        for rank in window.ranks:
            if not rank.watch.closed:
                rank.watch.set_profile(0, 1, self._epoch)

    def _let_go(self, window: _Window) -> None:
        self._stop_timing(window)
        for rank in window.ranks:
            rank.watch.gather_into(None)
            if not rank.watch.closed:
                rank.facts = rank.watch.facts()

    def cancel(self, why: str) -> None:
        """End a window before its time: the hooks time nothing more, and the master is told why."""
        if self._window is not None:
            window, self._window = self._window, None
            self._let_go(window)
            self._refuse(window.order.run, why)

    def finish(self) -> list[ProfileDone]:
        """The node process ends: nothing is timed any more; what is about to be ready is sent."""
        self.cancel("the job ended")
        if self._building is not None:
            self._building[1].wait(FINISH_S)
        return self._ready()

    def _ready(self) -> list[ProfileDone]:
        ready, self._done = self._done, []
        if self._building is not None and self._building[1].is_over:
            (run, built), self._building = self._building, None
            ready += built.result or in_messages(run, (), "the profile can't be computed; the node's log says why")
        return ready

    def _build(self, window: _Window) -> list[ProfileDone]:
        profiles: list[RankProfile] = []
        whys: list[str] = []
        most_calls = min(max(window.order.calls, 0), MOST_CALLS)
        for rank in window.ranks:
            try:
                profiles.append(rank.gathering.build(rank.facts, window.offset_ns, most_calls))
            except NoProfile as error:
                whys.append(f"rank {rank.facts.rank}: {error}")
            rank.gathering.clear()
        if not window.ranks:
            whys.append("no rank here")
        evidence = self._evidence(window.begin_ns / 1e9, window.end_ns / 1e9)
        return in_messages(window.order.run, profiles, _together(whys), evidence)


def _within(value: int, most: int) -> int:
    return min(max(value, 1), most)


def _together(whys: list[str]) -> str:
    left_out = len(whys) - WHYS_SHOWN
    return ("; ".join(whys[:WHYS_SHOWN]) + (f"; and {left_out} more" if left_out > 0 else ""))[:TEXT_LIMIT]
