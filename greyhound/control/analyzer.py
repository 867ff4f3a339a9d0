"""The analyzer of one node: finds rings, polls them about ten times a second, tells the master."""

import logging
import math
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from greyhound.control.ab_node import AbNode
from greyhound.control.inbox import Inbox
from greyhound.control.intercept import InterceptCheck
from greyhound.control.limits import Cores
from greyhound.control.link import Link
from greyhound.control.messages import AbStop, AbWindow, Bye, IterationBatch, Set, Stop, TraceOrder
from greyhound.control.plan_message import PlanOrder
from greyhound.control.plan_node import PlanNode
from greyhound.control.profile_message import ProfileOrder
from greyhound.control.profile_node import ProfileNode
from greyhound.control.rings import RingFile, RingSearch
from greyhound.control.stand_node import StandNode
from greyhound.control.trace_node import TraceNode
from greyhound.control.watch import RankWatch, own_mode
from greyhound.trace import layout
from greyhound.trace.ring import RingError, RingNotReady

POLL_S = 0.1
RINGS_A_ROUND = 16  # of more ranks each round reads a part, all of them within two seconds
MOST_ROUNDS = 20
SLOW_PERIOD_S = 1.0
INTERCEPT_PERIOD_S = 5.0
CORES_PERIOD_S = 30.0
NOT_READY_PATIENCE_S = 30.0
NOTICES_A_BATCH = 20
DEAD_KEPT_S = 60.0
TRACE_END_S = 0.5  # for files of a recording that the job's end cuts short
MUTED_BY_OWNER = "muted by the job's owner (mode=off)"

log = logging.getLogger(__name__)


class Analyzer:
    """Everything of one node but the process around it; `poll` never raises for a bad ring or a lost master."""

    def __init__(
        self,
        step_dir: Path,
        mode: str,
        threshold: float,
        warmup: int,
        link: Link,
        muted_by_site: Callable[[], str] = str,
        trace: TraceNode | None = None,
        profile: ProfileNode | None = None,
        follow: Callable[[Collection[RankWatch]], None] = lambda watches: None,
    ) -> None:
        """`muted_by_site` says why the site lets nothing be recorded now, empty where it doesn't; it never waits.

        `trace` writes recordings of `greyhound trace record`, `profile` makes what localisation works on, and
        `follow` is told now and then which ranks there are.
        """
        self._rings = RingSearch(step_dir)
        self._mode = mode
        self._threshold = threshold
        self._warmup = warmup
        self._link = link
        self._muted_by_site = muted_by_site
        self._ab = AbNode()
        self._plans = PlanNode()
        self._trace = trace or TraceNode(0, None)
        self._profile = profile or ProfileNode()
        self._follow = follow
        self._standing = StandNode()
        self._watches: dict[str, RankWatch] = {}
        self._refused: set[str] = set()
        self._not_ready_s: dict[str, float] = {}
        self._dead_since_s: dict[str, float] = {}
        self._notices: list[str] = []
        self._inbox = Inbox()
        self._check = InterceptCheck(step_dir)
        self._missed = False
        self._turn = 0
        self._word = self._mode_word(0.0)
        self._slow_due_s = 0.0
        self._intercept_due_s = 0.0
        self._cores = Cores()
        self._cores_due_s = 0.0
        self.stop_reason = ""

    def poll(self, now_s: float) -> None:
        """One round at `now_s` (monotonic)."""
        self._read_rings(self._due())
        for measure in self._ab.step(now_s, self._watches.values()):
            self._link.send(measure)
        for done in self._trace.step(now_s, self._watches.values()):
            self._link.send(done)
        self._follow_mode(now_s)
        for profiled in self._profile.step(now_s, self._watches.values(), self._why_untimed(now_s)):
            self._link.send(profiled)
        self._link.step(now_s)
        if now_s >= self._slow_due_s:
            self._slow_due_s = now_s + SLOW_PERIOD_S
            self._slow_round(now_s)

    def _why_muted(self) -> str:
        return self._muted_by_site() or (MUTED_BY_OWNER if self._mode == "off" else "")

    def _why_untimed(self, now_s: float) -> str:
        return self._why_muted() or ("muted for a comparison (greyhound ab)" if self._ab.is_muted(now_s) else "")

    def _mode_word(self, now_s: float) -> int:
        return layout.GH_MODE_MUTED if self._why_untimed(now_s) else own_mode(self._mode)

    def _follow_mode(self, now_s: float) -> None:
        """What a hook recorded before a change of its mode must be known by then."""
        word = self._mode_word(now_s)
        if word != self._word:
            self._word = word
            self._read_rings(self._watches)
        for watch in self._watches.values():
            watch.set_mode(word)

    def _slow_round(self, now_s: float) -> None:
        self._scan(now_s)
        self._let_go_of_the_dead(now_s)
        if not self._watches and now_s >= self._intercept_due_s:
            self._intercept_due_s = now_s + INTERCEPT_PERIOD_S
            self._missed = self._check.missed(now_s)
        if self._watches and now_s >= self._cores_due_s:
            self._cores_due_s = now_s + CORES_PERIOD_S
            self._cores.avoid([watch.pid for watch in self._watches.values() if watch.pid])
            self._follow(self._watches.values())
        self._send_batch()
        for stand in self._standing.step(now_s, self._watches.values()):
            self._link.send(stand)
        if self._link.master_alive():
            for watch in self._watches.values():
                watch.heartbeat()
        else:
            self._profile.cancel("the master was out of reach")
        for word in self._plans.step(now_s, self._watches.values()):
            self._link.send(word)
        for text in self._link.receive():
            self._obey(text, now_s)

    def _let_go_of_the_dead(self, now_s: float) -> None:
        """Rings of ended ranks are freed after a while: an elastic job restarts its ranks again and again."""
        for name, watch in list(self._watches.items()):
            if watch.check_alive():
                self._dead_since_s.pop(name, None)
                continue
            if now_s - self._dead_since_s.setdefault(name, now_s) > DEAD_KEPT_S:
                watch.remove()
                del self._watches[name], self._dead_since_s[name]

    def _scan(self, now_s: float) -> None:
        for found in self._rings.find(now_s):
            if found.key in self._watches or found.key in self._refused:
                continue
            try:
                watch = RankWatch(found, self._mode_word(now_s), self._threshold, self._warmup)
            except RingNotReady as error:
                self._wait_for(found.key, error, now_s)
            except RingError as error:
                self._refuse(found.key, error)
            else:
                self._accept(found, watch)

    def _accept(self, found: RingFile, watch: RankWatch) -> None:
        self._watches[found.key] = watch
        self._cores_due_s = 0.0
        self._not_ready_s.pop(found.key, None)
        log.info("watching %s", found.key)
        found.settle()

    def _wait_for(self, name: str, error: RingNotReady, now_s: float) -> None:
        """It is tried at each scan; one that takes long is told once."""
        since_s = self._not_ready_s.setdefault(name, now_s)
        if now_s - since_s > NOT_READY_PATIENCE_S:
            self._not_ready_s[name] = math.inf
            self.notice(f"ring not ready, that rank runs unmonitored until it is: {error}")

    def _refuse(self, name: str, error: RingError) -> None:
        self._refused.add(name)
        self.notice(f"ring refused, that rank runs unmonitored: {error}")

    def _due(self) -> list[str]:
        """The rings whose turn it is."""
        names = list(self._watches)
        share = max(RINGS_A_ROUND, -(-len(names) // MOST_ROUNDS))
        if len(names) <= share:
            return names
        begin = self._turn % len(names)
        self._turn = begin + share
        return (names + names)[begin : begin + share]

    def _read_rings(self, names: Iterable[str]) -> None:
        for name in list(names):
            watch = self._watches[name]
            lost_before = watch.lost_records
            try:
                reports = watch.poll()
            except RingError as error:
                del self._watches[name]
                watch.close()
                self._refuse(name, error)
                continue
            for report in reports:
                self._link.send(report)
            if watch.lost_records and not lost_before:
                self.notice(f"{name}: calls were overwritten before they were read; raise GREYHOUND_RING_RECORDS")

    def notice(self, text: str) -> None:
        """A line for the log here and for the status at the master."""
        log.warning("%s", text)
        self._notices.append(text[:400])

    def _send_batch(self) -> None:
        samples = [watch.sample() for watch in self._watches.values()]
        state = "not_intercepted" if self._missed and not samples else "waiting"
        if any(sample.locked for sample in samples):
            state = "tracking"
        self._link.send(IterationBatch(state, samples, self._notices[:NOTICES_A_BATCH], self._why_muted()[:400]))
        if self._link.connected:
            del self._notices[:NOTICES_A_BATCH]

    def _obey(self, text: str, now_s: float) -> None:
        message = self._inbox.open(text)
        match message.data if message is not None else None:
            case Stop(reason):
                self.stop_reason = reason or "the master said so"
            case Set() as wanted:
                self._set(wanted)
            case AbWindow() as window:
                self._profile.cancel("a comparison began (greyhound ab)")
                self._ab.take(window, now_s)
            case AbStop():
                self._ab.stop()
            case PlanOrder() as plan:
                self._plans.take(plan)
            case TraceOrder() as order:
                self._trace.take(order, now_s)
            case ProfileOrder() as order:
                self._profile.take(order)

    def _set(self, wanted: Set) -> None:
        if wanted.threshold != self._threshold:
            for watch in self._watches.values():
                watch.set_threshold(wanted.threshold)
        self._mode, self._threshold = wanted.mode, wanted.threshold

    def finish(self, reason: str) -> None:
        """Read what is left, say goodbye, let go of everything."""
        self._read_rings(self._watches)
        for watch in self._watches.values():
            watch.check_alive()  # its ring may have moved since the last look, though the rank has ended by now:
            watch.check_alive()  # the second look tells
        self._send_batch()
        for done in self._trace.finish(self._watches.values(), TRACE_END_S):
            self._link.send(done)
        for profiled in self._profile.finish():
            self._link.send(profiled)
        self._link.send(Bye(reason[:400]))
        self._link.close()
        for watch in self._watches.values():
            watch.close()
        self._watches.clear()
        self._rings.close()
