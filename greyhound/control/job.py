"""The master's picture of the job: messages in, events and status out. Pure: time comes in as arguments."""

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from greyhound.control.episodes import Episode, EpisodeMerger, episode_data
from greyhound.control.events import Emit, utc
from greyhound.control.messages import Bye, Hello, IterationBatch, Message, RankSample, Report
from greyhound.control.minor import MinorMerger
from greyhound.control.names import StepName
from greyhound.control.runs import of_job
from greyhound.control.states import State, StateMachine, TransitionError

NOTICES_KEPT = 20
GATHER_S = 5.0
PARTIAL_LOCK_S = 60.0
SILENT_S = 15.0
GAP_S = 7.5  # between two ticks: this process was stopped, so the nodes' silence says nothing
MISSING_NODE_S = 60.0
PARTLY_MUTED_S = 10.0
CALM_S = 5.0  # after a regime
EPISODES_SHOWN = 100
STATUS_VERSION = 1


@dataclass
class Node:
    """What is known of one node's analyzer."""

    name: str
    seen_s: float
    state: str = "starting"
    gone: bool = False
    silence: str = ""
    muted: str = ""
    samples: dict[str, RankSample] = field(default_factory=dict)


class Job:
    """One run of one step. `notice` is told once about everything that only deserves a line in the log."""

    def __init__(
        self, name: StepName, mode: str, tasks: int, nodes: int, emit: Emit, notice: Callable[[str], None]
    ) -> None:
        self.name = name
        self.mode = mode
        self.tasks = tasks
        self.node_count = nodes
        self.machine = StateMachine()
        self.merger = EpisodeMerger()
        self.nodes: dict[int, Node] = {}
        self.minor = MinorMerger()
        self.notices: list[str] = []
        self.settings: dict[str, Any] = {}
        self.answered: dict[str, Any] | None = None
        self.ab: dict[str, Any] | None = None
        self.runs: dict[str, Any] | None = None
        self.last_fingerprint = ""
        self.verdict: dict[str, Any] | None = None
        self.fail_stop: dict[str, Any] | None = None
        self._unmuted = True
        self._partly_muted_since_s: float | None = None
        self._regime_s = float("-inf")
        self._emit = emit
        self._tell = notice
        self._partial_since_s: float | None = None
        self._tracking_since_s: float | None = None
        self._last = {"iteration": 0, "iteration_s": 0.0, "healthy_s": 0.0}
        self._most = {"ranks": 0, "tracked": 0}
        self._started_s = 0.0
        self._ticked_s = 0.0
        self._announced: set[str] = set()
        self._regime: set[str] = set()

    # -- messages ---------------------------------------------------------------------------------

    def start(self, now_s: float, data: dict[str, Any]) -> None:
        """Write the first event."""
        self._started_s = self._ticked_s = now_s
        self._emit("start", now_s, data)

    def handle(self, message: Message, now_s: float) -> None:
        """Take one message of an analyzer."""
        data = message.data
        node = self.nodes.setdefault(message.node, Node(f"node {message.node}", now_s))
        node.seen_s = now_s
        node.gone = isinstance(data, Bye)
        if node.silence:
            # Its analyzer was only stopped for a while, with the job or by itself.
            self.notices = [text for text in self.notices if text != node.silence]
            self._tell(f"{node.name}: its analyzer is heard again")
            node.silence = ""
        if isinstance(data, Hello):
            node.name = data.name
        elif isinstance(data, IterationBatch):
            node.state = data.state
            node.muted = data.muted
            node.samples = {sample.key: sample for sample in data.ranks}
            for text in data.notices:
                self.notice(f"{node.name}: {text}")
        elif isinstance(data, Report):
            self._report(f"{message.node}:{data.key}", data, now_s)

    def _report(self, key: str, report: Report, now_s: float) -> None:
        if report.what == "minor":
            finding = self.minor.add(key, report, self._most["tracked"])
            if finding is not None:
                self._emit("minor", now_s, finding, iteration=finding["reported"])
            return
        if report.what != "regime":
            self.merger.report(key, report)
            return
        self._regime_s = now_s
        if key in self._regime:
            self._regime = set()
        half_before = 2 * len(self._regime) >= self._most["tracked"]
        self._regime.add(key)
        if not half_before and 2 * len(self._regime) >= self._most["tracked"]:
            data = {"ranks": len(self._regime), "healthy_before_s": round(report.healthy_s, 6)}
            self._emit("regime", now_s, data, iteration=report.at)

    def notice(self, text: str) -> None:
        """Keep a line for the status; each text once."""
        if text not in self.notices:
            self.notices = [*self.notices, text][-NOTICES_KEPT:]
            self._tell(text)

    # -- time -------------------------------------------------------------------------------------

    def tick(self, now_s: float) -> None:
        """Bring state and episodes up to `now_s`."""
        samples = self.samples
        tracked = self._tracked()
        self._most["ranks"] = max(self._most["ranks"], len(samples))
        # The ranks' last batch says how far they came; it arrives after they ended.
        known = tracked or {key: sample for key, sample in samples.items() if sample.locked}
        self._most["tracked"] = max(self._most["tracked"], len(known))
        if known:
            self._measure(known)
        if tracked:
            self._tracking_since_s = now_s if self._tracking_since_s is None else self._tracking_since_s
        self.merger.set_tracked(set(tracked))
        self._follow_state(samples, tracked, now_s)
        for episode in self.merger.step(self.iteration, int(now_s * 1e9)):
            self._episode_changed(episode, now_s)
        self._check_nodes(now_s)
        self._check_partial(samples, tracked, now_s)

    @property
    def iteration(self) -> int:
        """The job's iteration: median over the tracked ranks, the last known one after they ended."""
        return int(self._last["iteration"])

    @property
    def iteration_s(self) -> float:
        """Seconds an iteration now, 0.0 while unknown."""
        return self._last["iteration_s"]

    @property
    def tracked_nodes(self) -> set[int]:
        """Nodes that have tracked ranks."""
        return {int(key.partition(":")[0]) for key in self._tracked()}

    @property
    def healthy_s(self) -> float:
        """Healthy seconds an iteration, 0.0 while unknown."""
        return self._last["healthy_s"]

    @property
    def fingerprint(self) -> str:
        """Digest of the work of all living ranks; empty while one of them isn't tracked or has none yet."""
        found = [sample.fingerprint if sample.locked else "" for sample in self.samples.values() if sample.alive]
        return of_job(found) if found and all(found) else ""

    @property
    def nodes_with_ranks(self) -> dict[int, str]:
        """Names of the nodes that are there and have living ranks, by index."""
        there = {index: node for index, node in self.nodes.items() if not node.gone}
        return {index: node.name for index, node in there.items() if any(s.alive for s in node.samples.values())}

    def disturbance(self, now_s: float) -> str:
        """Why nothing can be compared now, or nothing."""
        if self.machine.state is not State.TRACKING:
            return f"the job is {self.machine.state.value}"
        if self.merger.current is not None:
            return f"fail-slow {self.merger.current.id} is open"
        if now_s - self._regime_s < CALM_S:
            return "the work changed"
        return "" if self.iteration_s > 0 and self._last["healthy_s"] > 0 else "the healthy time isn't known yet"

    def _tracked(self) -> dict[str, RankSample]:
        return {key: sample for key, sample in self.samples.items() if sample.alive and sample.locked}

    @property
    def samples(self) -> dict[str, RankSample]:
        """The latest sample of each rank, by `NODE:key`."""
        return {f"{index}:{key}": sample for index, node in self.nodes.items() for key, sample in node.samples.items()}

    def _measure(self, tracked: dict[str, RankSample]) -> None:
        healthy = [sample.healthy_s for sample in tracked.values() if sample.healthy_s > 0]
        iteration = round(median(sample.iteration for sample in tracked.values()))
        # A count that began again (the period was found to be longer) leaves no healthy time behind.
        known_s = self._last["healthy_s"] if iteration >= self._last["iteration"] else 0.0
        self._last = {
            "iteration": iteration,
            "iteration_s": median(sample.seconds for sample in tracked.values()),
            "healthy_s": median(healthy) if healthy else known_s,
        }

    def _follow_state(self, samples: dict[str, RankSample], tracked: dict[str, RankSample], now_s: float) -> None:
        if self.machine.state in (State.ENDED, State.UNMONITORED):
            return
        muted = self._why_muted(now_s)
        if muted:
            self._go(State.MUTED, muted, now_s)
            return
        if self.machine.state is State.MUTED and not self._unmuted:
            self._unmuted = True
            self._emit("unmuted", now_s, {"reason": None}, iteration=self.iteration)
        if tracked:
            alive = sum(sample.alive for sample in samples.values())
            since_s = self._tracking_since_s if self._tracking_since_s is not None else now_s
            if len(tracked) < alive and now_s - since_s < GATHER_S:
                return  # the others are about to be, too
            if self.machine.state is not State.SUSPECT:
                self._go(State.TRACKING, "", now_s, {"ranks": len(tracked)})
                if self.merger.current is not None:
                    self._change(State.SUSPECT, f"episode {self.merger.current.id}")
            return
        if any(node.state == "not_intercepted" for node in self.nodes.values()) and not samples:
            reason = "NCCL runs in this step, but its calls don't pass the hook (static, hidden or opened by dlsym)"
            self._go(State.NOT_INTERCEPTED, reason, now_s)
        elif samples and not any(sample.alive for sample in samples.values()):
            self._go(State.WAITING, "the ranks ended", now_s)
        elif samples:
            self._go(State.WAITING, f"no period found yet in the calls of {len(samples)} ranks", now_s)
        else:
            self._go(State.WAITING, "no communicator made yet", now_s)

    def _why_muted(self, now_s: float) -> str:
        """What the nodes say, where all of them do; where only some do for long, that is a notice."""
        there = [node for node in self.nodes.values() if not node.gone]
        muted = [node for node in there if node.muted]
        if muted and len(muted) == len(there):
            self._partly_muted_since_s, self._unmuted = None, False
            return muted[0].muted
        if not muted:
            self._partly_muted_since_s = None
        elif self._partly_muted_since_s is None:
            self._partly_muted_since_s = now_s
        elif now_s - self._partly_muted_since_s > PARTLY_MUTED_S:
            self.notice(f"{len(muted)} of {len(there)} nodes record nothing: {muted[0].name}: {muted[0].muted}")
        return ""

    def _go(self, state: State, reason: str, now_s: float, data: dict[str, Any] | None = None) -> None:
        if self._change(state, reason):
            self._emit(state.value, now_s, {**(data or {}), "reason": reason or None}, iteration=self.iteration)

    def _change(self, state: State, reason: str = "") -> bool:
        """Whether the state changed. A change that the table doesn't know is a fault of ours, not the job's end."""
        try:
            return self.machine.to(state, reason)
        except TransitionError as error:
            self.notice(f"state kept: {error}")
            return False

    def _episode_changed(self, episode: Episode, now_s: float) -> None:
        opening = {**episode_data(episode, self.iteration), "end": None, "duration_s": None, "cause": None}
        if episode.id not in self._announced:
            self._announced.add(episode.id)
            if self.machine.state is State.TRACKING:
                self._change(State.SUSPECT, f"episode {episode.id}")
            self._emit("suspect", now_s, opening, episode.id, episode.reported)
        if not episode.open:
            if self.machine.state is State.SUSPECT:
                self._change(State.TRACKING)
            if episode.cause == "recovered":
                self._emit("recovered", now_s, episode_data(episode, self.iteration), episode.id, episode.end)

    # -- things worth a line ------------------------------------------------------------------------

    def _check_nodes(self, now_s: float) -> None:
        # Nobody can be heard without a bus, nor by a master that was stopped itself: silence counts from now on.
        deaf = abs(now_s - self._ticked_s) > GAP_S or self.machine.state is State.UNMONITORED
        self._ticked_s = now_s
        for node in self.nodes.values():
            node.seen_s = now_s if deaf else node.seen_s
            if not node.gone and now_s - node.seen_s > SILENT_S:
                self._fell_silent(node, now_s)
        missing = sorted(set(range(self.node_count)) - set(self.nodes))
        if self._tracking_since_s is not None and now_s - self._tracking_since_s > MISSING_NODE_S and missing:
            shown = ", ".join(str(index) for index in missing[:10]) + (", ..." if len(missing) > 10 else "")
            self.notice(f"no word from {len(missing)} of {self.node_count} nodes (index {shown}); they run unmonitored")

    def _fell_silent(self, node: Node, now_s: float) -> None:
        node.silence = f"{node.name}: its analyzer has been silent for {SILENT_S:.0f} s; its ranks run unmonitored"
        node.gone = True
        node.samples = {}
        self.notice(node.silence)
        self._emit("unmonitored", now_s, {"reason": node.silence, "node": node.name}, iteration=self.iteration)

    def _check_partial(self, samples: dict[str, RankSample], tracked: dict[str, RankSample], now_s: float) -> None:
        alive = [sample for sample in samples.values() if sample.alive]
        if not tracked or len(tracked) == len(alive):
            self._partial_since_s = None
            return
        self._partial_since_s = now_s if self._partial_since_s is None else self._partial_since_s
        if now_s - self._partial_since_s > PARTIAL_LOCK_S:
            self.notice(f"only some ranks are tracked: {len(alive) - len(tracked)} of {len(alive)} show no period")

    # -- the end and the status -------------------------------------------------------------------

    def unmonitored(self, reason: str, now_s: float) -> None:
        """The monitoring is broken, the job goes on."""
        self._go(State.UNMONITORED, reason, now_s)

    def monitored_again(self, now_s: float) -> None:
        """What was broken works again."""
        if self.machine.state is State.UNMONITORED:
            self._go(State.WAITING, "monitored again", now_s)

    def finish(self, now_s: float, reason: str) -> None:
        """Write the last event."""
        if self.machine.state is State.ENDED:
            return
        current = self.merger.current
        if current is not None:
            current.close(self.iteration, int(now_s * 1e9), "open at the end of the job")
        was = self.machine.state
        self._change(State.ENDED, self.machine.reason if was is State.UNMONITORED else reason)
        broken = self.machine.reason if was is State.UNMONITORED else None
        alive = sum(sample.alive for sample in self.samples.values())
        data = {"reason": reason, "unmonitored": broken, "still_running": alive, **self._summary(now_s)}
        self._emit("end", now_s, data, iteration=self.iteration)

    def _summary(self, now_s: float) -> dict[str, Any]:
        return {
            "iterations": self.iteration,
            "healthy_s": round(self._last["healthy_s"], 6),
            "wall_s": round(now_s - self._started_s, 3),
            "ranks": self._most["ranks"],
            "tracked": self._most["tracked"],
            "lost_s": round(self.merger.lost_s(self.iteration), 3),
            "episodes": [self._episode_status(episode) for episode in self.merger.episodes],
            "episodes_left_out": self.merger.forgotten,
            "minor": self.minor.found,
        }

    def _episode_status(self, episode: Episode) -> dict[str, Any]:
        return {"id": episode.id, "open": episode.open, **episode_data(episode, self.iteration)}

    def status(self, now_s: float) -> dict[str, Any]:
        """What `greyhound status` shows; seconds an iteration are 0.0 while unknown."""
        samples = self.samples
        return {
            "v": STATUS_VERSION,
            "job": self.name.job,
            "step": self.name.step,
            "restart": self.name.restart,
            "mode": self.mode,
            "time": utc(now_s),
            "started": utc(self._started_s),
            "state": self.machine.state.value,
            "reason": self.machine.reason or None,
            "iteration": self.iteration,
            "iteration_s": round(self._last["iteration_s"], 6),
            "healthy_s": round(self._last["healthy_s"], 6),
            "tasks": self.tasks,
            "ranks": sum(sample.alive for sample in samples.values()),
            "tracked": sum(sample.alive and sample.locked for sample in samples.values()),
            "nodes": [
                {"index": index, "name": node.name, "state": "gone" if node.gone else node.state}
                for index, node in sorted(self.nodes.items())
            ],
            "node_count": self.node_count,
            "lost_s": round(self.merger.lost_s(self.iteration), 3),
            "episodes": [self._episode_status(episode) for episode in self.merger.episodes[-EPISODES_SHOWN:]],
            "minor": self.minor.found,
            "settings": self.settings,
            "answered": self.answered,
            "ab": self.ab,
            "fingerprint": self.last_fingerprint or None,
            "runs": self.runs,
            "verdict": self.verdict,
            "fail_stop": self.fail_stop,
            "notices": self.notices,
        }
