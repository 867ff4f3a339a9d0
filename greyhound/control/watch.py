"""One rank under watch: its ring, its iteration clock and its tracker."""

import bisect
import json
import math
import time
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

from greyhound.control.ab_meter import Mark, Measured, WindowMeter
from greyhound.control.messages import RankSample, Report
from greyhound.control.profile_gather import Gathering
from greyhound.control.rings import RingFile
from greyhound.control.stand_message import StandingRow
from greyhound.control.stand_node import standing_row
from greyhound.detect.period import Iteration, IterationClock
from greyhound.detect.tracker import Closed, Finding, Minor, Opened, Regime, Tracker, TrackerConfig
from greyhound.localize.from_records import RankFacts
from greyhound.trace import layout
from greyhound.trace.dump import DumpWriter
from greyhound.trace.fingerprint import FingerprintTaker, comm_sizes
from greyhound.trace.mailbox import MailboxError
from greyhound.trace.records import symbols, top_level
from greyhound.trace.ring import Ring

ENDS_KEPT = 8192
STILL_S = 600.0
PLANNED_S, PLANNED_ITERATIONS = 60.0, 5.0  # so long after a plan of ours other calls are its doing


def process_alive(pid: int, pid_start: int) -> bool:
    """Whether the process with this pid and start time (clock ticks, /proc/PID/stat field 22) still runs."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:  # noqa: PTH123 - half the time, each second and rank
            text = file.read()
    except OSError:
        return False
    fields = text[text.rfind(b")") + 2 :].split()
    return fields[0] not in (b"Z", b"X") and int(fields[19]) == pid_start


class EndTimes:
    """Wall clock ends of the last ENDS_KEPT iterations, by their number."""

    def __init__(self) -> None:
        self._numbers: deque[int] = deque(maxlen=ENDS_KEPT)
        self._ends_ns: deque[int] = deque(maxlen=ENDS_KEPT)

    def add(self, number: int, end_ns: int) -> None:
        """Numbers must grow."""
        self._numbers.append(number)
        self._ends_ns.append(end_ns)

    def at(self, number: int) -> int:
        """End of iteration `number`, or of the nearest kept one before it; 0 while there is none."""
        if not self._numbers:
            return 0
        place = bisect.bisect_right(self._numbers, number) - 1
        return self._ends_ns[max(place, 0)]


class RankWatch:
    """Reads one ring at each poll. RingError and RingNotReady of the ring pass through."""

    def __init__(self, found: RingFile, mode: int, threshold: float, warmup: int) -> None:
        self.key = found.key
        self._ring = Ring.open(found.path)
        self._ring.set_mode(mode)
        self._mode = mode
        self._calls = 0
        self._mark: Mark | None = None
        self._meters: list[WindowMeter] = []
        self._clock = IterationClock()
        self._tracker = Tracker(TrackerConfig(threshold=threshold, warmup=warmup, holds_pauses=False))
        self._opened: Opened | None = None
        self._ends = EndTimes()
        self._work = FingerprintTaker()
        self._writer: DumpWriter | None = None
        self._pattern = 0
        self._planned_s = -math.inf
        self._last = (0, 0.0, 0)
        self.closed = False
        self._gathering: Gathering | None = None
        self._last_record: NDArray[np.void] | None = None
        self.lost_records = 0
        self._header = header = self._ring.header
        # In a PID namespace of its own (a container) it has another pid here: where that isn't known, its ring tells.
        self._pid = found.pid or header.pid
        self._visible = process_alive(self._pid, header.pid_start)
        self._signs = (0, 0, 0)
        self._moved_s = time.monotonic()
        self.alive = True

    @property
    def pid(self) -> int:
        """Its process id here; 0 where it can't be seen from here."""
        return self._pid if self._visible else 0

    @property
    def bus(self) -> str:
        """PCI bus id of its GPU."""
        return self._header.gpu_bus_id

    @property
    def _rank(self) -> int:
        """Its world rank; -1 until the hook has learnt it."""
        if self._header.world_rank < 0:
            self._header = self._ring.header
        return self._header.world_rank

    def poll(self) -> list[Report]:
        """Read what is new; what the tracker says to it."""
        records, lost = self._ring.read()
        if self._writer is not None:
            self._writer.add(records, lost)
        if lost:
            self.lost_records += lost
            self._gap()
        if self._gathering is not None:
            self._gathering.add(records)
        kept = top_level(records)
        if len(kept) == 0:
            return []
        offset_ns = time.time_ns() - time.monotonic_ns()
        reports: list[Report] = []
        iterations = self._clock.push(symbols(kept), kept["t_ns"])
        self._take_fingerprint(kept, iterations)
        for iteration in iterations:
            end_ns = int(iteration.end_ns) + offset_ns
            self._see_end(int(iteration.end_ns), kept["t_ns"])
            findings: list[Finding] = []
            if iteration.pattern != self._pattern and self._follows_plan(iteration):
                self._pattern = iteration.pattern
            elif iteration.pattern != self._pattern:
                # Other work, perhaps counted anew: its times can't be compared with those before.
                self._pattern = iteration.pattern
                findings += self._tracker.pattern_changed(iteration.index)
                self._ends = EndTimes()
                self._spoil("its work changed in the window")
            self._ends.add(iteration.index, end_ns)
            self._last = (iteration.index, iteration.seconds, end_ns)
            if iteration.seconds > 0:  # of two threads' calls the later record may bear the earlier time
                findings += self._tracker.update(iteration.index, iteration.seconds)
            reports += [self._report(finding, end_ns) for finding in findings]
        self._calls += len(kept)
        self._last_record = kept[-1:].copy()
        return reports

    def _gap(self) -> None:
        """Calls are missing: what they were part of is neither timed nor remembered."""
        self._clock.gap()
        self._spoil("calls of it were lost in the window")
        if self._writer is not None:
            self._writer.gap()
        if self._work.found is None:
            self._work.restart()

    def _take_fingerprint(self, kept: NDArray[np.void], iterations: list[Iteration]) -> None:
        """Before the pattern of these iterations is taken over: other work begins anew."""
        if iterations and iterations[-1].pattern != self._pattern:
            self._work.restart()
            iterations = [iteration for iteration in iterations if iteration.pattern == iterations[-1].pattern]
        if self._work.found is None:
            sizes = comm_sizes(self._ring.comms())
            self._work.push(kept, [iteration.end_ns for iteration in iterations], sizes)

    def _report(self, finding: Finding, now_ns: int) -> Report:
        """The message for a finding; `now_ns` is the wall clock end of the iteration that made it certain."""
        rank = self._rank
        if isinstance(finding, Minor):
            return self._report_minor(finding, now_ns)
        opened = finding if isinstance(finding, Opened) else self._opened
        if isinstance(finding, Regime) or opened is None:
            healthy_s = getattr(finding, "healthy_s", None) or 0.0
            at = finding.reported
            return Report(self.key, rank, "regime", finding.onset, now_ns, at, now_ns, healthy_s, 0.0, 0.0, 0.0)
        closed = finding if isinstance(finding, Closed) else None
        self._opened = None if closed else opened
        return Report(
            key=self.key,
            rank=rank,
            what="closed" if closed else "opened",
            onset=opened.onset,
            onset_ns=self._ends.at(opened.onset - 1) or now_ns,
            at=closed.end if closed else opened.reported,
            at_ns=(self._ends.at(closed.end - 1) or now_ns) if closed else now_ns,
            healthy_s=opened.healthy_s,
            slow_s=finding.slowdown * opened.healthy_s,
            slowdown=finding.slowdown,
            lost_s=closed.lost_s if closed else 0.0,
        )

    def _report_minor(self, finding: Minor, now_ns: int) -> Report:
        return Report(
            key=self.key,
            rank=self._rank,
            what="minor",
            onset=finding.onset,
            onset_ns=self._ends.at(finding.onset - 1) or now_ns,
            at=finding.reported,
            at_ns=now_ns,
            healthy_s=finding.healthy_s,
            slow_s=finding.level_s,
            slowdown=finding.level,
            lost_s=0.0,
        )

    def set_mode(self, mode: int) -> None:
        """Tell the hook its mode, after a poll: what it recorded until now must have been read.

        After a mute the running iteration isn't timed: calls are missing from it.
        """
        if mode == self._mode:
            return
        if self._mode == layout.GH_MODE_MUTED:
            self._gap()
        self._mode = mode
        self._ring.set_mode(mode)

    def set_threshold(self, threshold: float) -> None:
        """From now on this share is reported; what is known of the healthy time stays."""
        self._tracker.set_threshold(threshold)

    # -- `greyhound trace record` ---------------------------------------------------------------------

    def dump_writer(self) -> DumpWriter:
        """An empty dump of this rank."""
        return DumpWriter(self._ring.header)

    def communicators(self) -> NDArray[np.void]:
        """Those made so far (COMM_DTYPE)."""
        return self._ring.comms()

    def record_into(self, writer: DumpWriter | None) -> None:
        """From the next poll on all calls go there as well; None: no more."""
        self._writer = writer

    # -- windows of `greyhound ab` --------------------------------------------------------------------

    def _see_end(self, end_ns: int, t_ns: NDArray[np.int64]) -> None:
        """Note the end of an iteration among the calls being read."""
        self._mark = Mark(end_ns, self._calls + int(np.searchsorted(t_ns, end_ns, side="right")))
        for meter in self._meters:
            meter.see(self._mark)
        if self._gathering is not None:
            self._gathering.see_end(end_ns)

    def begin_window(self, muted: bool, begin_ns: int, end_ns: int) -> WindowMeter:
        """A meter that sees this rank's iterations until `end_window`; times are CLOCK_MONOTONIC."""
        meter = WindowMeter(muted, begin_ns, end_ns, self._mark, self._ring.muted_calls)
        self._meters.append(meter)
        return meter

    def end_window(self, meter: WindowMeter) -> Measured:
        """What it measured; of a rank whose ring was let go nothing is known."""
        self._meters.remove(meter)
        if self.closed:
            return Measured(why_not="a rank ended in it")
        return meter.result(self._ring.muted_calls, self._clock.period if self._clock.locked else None)

    def sample(self) -> RankSample:
        """The rank's clock now."""
        number, seconds, end_ns = self._last
        return RankSample(
            key=self.key,
            rank=self._rank,
            locked=self._clock.period is not None,
            alive=self.alive,
            iteration=number,
            seconds=seconds,
            healthy_s=self._tracker.healthy_s or 0.0,
            end_ns=end_ns,
            fingerprint=self._fingerprint,
            calls=self._clock.period or 0,
        )

    @property
    def _fingerprint(self) -> str:
        return self._work.found.digest if self._work.found else ""

    # -- profiling ------------------------------------------------------------------------------------

    def facts(self) -> RankFacts:
        """Whose profile it is; the master knows the node."""
        return RankFacts(-1, self.key, self._rank, self.bus, self._fingerprint)

    def set_profile(self, budget: int, one_in: int, epoch: int) -> None:
        """Which calls the hook times on the GPU, GH_OFF_PROFILE; a budget of 0: none."""
        self._ring.set_profile(budget, one_in, epoch)

    def gather_into(self, gathering: Gathering | None) -> None:
        """From the next poll on what a profile is made of goes there as well; None: no more."""
        if self._gathering is not None and not self.closed:
            self._gathering.comms = self._ring.comms()
        self._gathering = gathering
        if gathering is not None:
            gathering.comms = self._ring.comms()

    def _spoil(self, why: str) -> None:
        if self._gathering is not None:
            self._gathering.spoil(why)

    def check_alive(self) -> bool:
        """Whether the rank still runs: its process does or, where that was never seen here, its ring has moved lately.

        A rank without calls (a checkpoint, an evaluation) is still for minutes, hence STILL_S; a ring that moves
        belongs to a living rank whatever /proc says.
        """
        signs = (self._ring.recorded, self._ring.muted_calls, self._ring.heartbeat_ns)
        moves, self._signs = signs != self._signs, signs
        # Of hundreds of ranks /proc is asked only for those whose ring stands still.
        running = (moves and self._visible) or process_alive(self._pid, self._header.pid_start)
        self._visible = self._visible or running
        now_s = time.monotonic()
        if moves:
            self._moved_s = now_s
        lately = moves if self._visible else now_s - self._moved_s < STILL_S
        self.alive = self._ring.hook_state != layout.GH_STATE_ENDED and (running or lately)
        return self.alive

    # -- the plugin in the training -------------------------------------------------------------------

    def plugin_word(self) -> Any:
        """What a plugin in the training tells (parsed JSON, unchecked); None where there is none."""
        if self.closed:
            return None
        try:
            text = self._ring.read_report()
            return None if text is None else json.loads(text)
        except (MailboxError, ValueError, RecursionError):
            return None

    def tell_plan(self, text: bytes) -> None:
        """A plan (JSON) for that plugin."""
        if not self.closed:
            self._ring.write_plan(text)
            self._planned_s = time.monotonic()

    def _follows_plan(self, iteration: Iteration) -> bool:
        """Whether the calls are others because micro-batches are split anew: the same work, at another place."""
        within_s = max(PLANNED_S, PLANNED_ITERATIONS * self.iteration_s)
        lately = time.monotonic() - self._planned_s < within_s
        return lately and iteration.index > self._last[0]

    # -- fail-stops -----------------------------------------------------------------------------------

    @property
    def iteration_s(self) -> float:
        """Seconds of its last iteration, 0.0 while unknown."""
        return self._last[1]

    @property
    def has_ended(self) -> bool:
        """Whether it ended by itself, or its ring is gone."""
        return self.closed or self._ring.hook_state == layout.GH_STATE_ENDED

    def still_s(self) -> float:
        """Seconds without any call, as `check_alive` saw it."""
        return time.monotonic() - self._moved_s

    def standing(self) -> StandingRow:
        """What it has issued so far."""
        since_ns = time.time_ns() - int(self.still_s() * 1e9)
        return standing_row(self.key, self._rank, since_ns, time.monotonic_ns(), self._ring, self._last_record)

    def heartbeat(self) -> None:
        """Tell the hook that the master lives."""
        self._ring.set_master_heartbeat(time.monotonic_ns())

    def close(self) -> None:
        """Unmap the ring; nobody would tell its hook that a profile's window is over."""
        if not self.closed:
            self._ring.set_profile(0)
        self.closed = True
        self._ring.close()

    def remove(self) -> None:
        """Unmap the ring of an ended rank and remove its file."""
        self.close()
        self._ring.path.unlink(missing_ok=True)


def own_mode(mode: str) -> int:
    """The control word for `on` or `observe`."""
    return layout.GH_MODE_ON if mode == "on" else layout.GH_MODE_OBSERVE
