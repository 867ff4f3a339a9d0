"""Carries out what the job's owner asks while it runs (requests.py), within the site's ceilings; answers by events."""

import logging
import random
from collections.abc import Callable
from typing import Any

from greyhound.config import Settings, lowest
from greyhound.control.ab_run import AbError, AbRun, plan
from greyhound.control.events import Emit
from greyhound.control.job import Job
from greyhound.control.messages import AbMeasure, Data, Set, TraceDone
from greyhound.control.profiler import ProfileError, Profiler
from greyhound.control.requests import Request, RequestBox
from greyhound.control.states import State
from greyhound.control.trace_run import TraceRun

PERIOD_S = 1.0
TRACE_S = 10.0

log = logging.getLogger(__name__)


class TraceError(RuntimeError):
    """A recording that can't be made now; the message says why."""


class Owner:
    """Looks for requests once a second. What the analyzers must be told is in `outgoing` until it was sent."""

    def __init__(self, box: RequestBox, job: Job, settings: Settings, emit: Emit, profiler: Profiler) -> None:
        """`settings` are those that the job was started with."""
        self._profiler = profiler
        self._box = box
        self._job = job
        self._emit = emit
        self._max_mode = settings.max_mode
        self._first = Set(settings.mode, settings.threshold)
        self._wanted = self._first
        self._ab: AbRun | None = None
        self._trace: TraceRun | None = None
        self._due_s = 0.0
        self.outgoing: list[Data] = []
        job.settings = {"threshold": settings.threshold, "warmup": settings.warmup, "max_mode": settings.max_mode}
        job.settings |= {"freeze": settings.freeze, "s4": settings.s4}

    def step(self, now_s: float) -> None:
        """Once a round, at wall clock `now_s`."""
        if abs(now_s - self._due_s) < PERIOD_S:
            return
        self._due_s = now_s
        for request in self._box.take():
            self._carry_out(request, now_s)
        if self._ab is not None:
            self.outgoing += self._ab.step(now_s, self._job.disturbance(now_s))
            if self._job.machine.state in (State.MUTED, State.UNMONITORED):
                self._stop_ab(f"the job is {self._job.machine.state.value}")
        if self._ab is not None and self._ab.over:
            self._ab = None
        self._job.ab = self._ab.status() if self._ab is not None else None
        if self._trace is not None and self._trace.is_over(now_s):
            self._emit("trace", now_s, self._trace.result(), iteration=self._job.iteration)
            self._trace = None

    @property
    def comparing(self) -> str:
        """Why calls are muted at times, or nothing."""
        return "a comparison is under way (greyhound ab)" if self._ab is not None else ""

    def new_bus(self) -> None:
        """The analyzers find another Redis, which knows nothing of what the first one was told."""
        if self._wanted != self._first:
            self.outgoing = [self._wanted, *self.outgoing]

    def take(self, node: int, answer: AbMeasure | TraceDone) -> None:
        """A node's measure of a window, or the files that it recorded."""
        if isinstance(answer, TraceDone):
            if self._trace is not None:
                self._trace.take(node, answer)
        elif self._ab is not None:
            self._ab.take(node, answer)

    def finish(self, now_s: float) -> None:
        """The job ends: say what there is of a recording."""
        if self._trace is not None:
            self._emit("trace", now_s, self._trace.result(), iteration=self._job.iteration)
            self._trace = None

    def _carry_out(self, request: Request, now_s: float) -> None:
        actions: dict[str, Callable[[Request, float], str]] = {
            "set": self._set,
            "ab": self._start_ab,
            "ab_stop": lambda request, now_s: self._stop_ab("its owner stopped it"),
            "trace": self._start_trace,
            "profile": lambda request, now_s: self._profiler.ask(request.id),
        }
        applied, text = False, request.why_not
        if not text:
            try:
                text = actions[request.kind](request, now_s)
                applied = True
            except (AbError, TraceError, ProfileError) as error:
                text = str(error)
        log.info("request %s %s: %s", request.id, "carried out" if applied else "refused", text)
        data = {"request": request.id, "applied": applied, "text": text, "mode": self._job.mode}
        data["threshold"] = self._wanted.threshold
        self._job.answered = data
        self._emit("setting", now_s, data, iteration=self._job.iteration)

    def _set(self, request: Request, now_s: float) -> str:
        asked = str(request.fields.get("mode", self._wanted.mode))
        mode = lowest(asked, self._max_mode)
        self._wanted = Set(mode, float(request.fields.get("threshold", self._wanted.threshold)))
        self.outgoing.append(self._wanted)
        self._job.mode = mode
        self._job.settings["threshold"] = self._wanted.threshold
        said = f"mode {mode}, threshold {self._wanted.threshold:g}"
        if mode != asked:
            said += f" ({asked} was asked for, the site allows {mode}: max_mode={self._max_mode})"
        return said

    def _start_ab(self, request: Request, now_s: float) -> str:
        if self._ab is not None:
            raise AbError("a comparison is under way already")
        if self._trace is not None:
            raise AbError("not now: calls are being recorded (greyhound trace record)")
        trouble = self._job.disturbance(now_s)
        if trouble:
            raise AbError(f"not now: {trouble}")
        minutes = float(request.fields.get("minutes", 5.0))
        made = plan(minutes, self._job.iteration_s, random.Random())
        self._ab = AbRun(request.id, made, self._job.tracked_nodes, self._tell_ab)
        self._ab.start(now_s)
        return f"comparing {len(made.muted)} windows of {made.window_s:.0f} s"

    def _start_trace(self, request: Request, now_s: float) -> str:
        nodes = self._job.nodes_with_ranks
        if self._trace is not None:
            raise TraceError("a recording is under way already")
        if self._ab is not None:
            raise TraceError("not now: a comparison is under way, in which the hooks are muted at times")
        if self._job.machine.state in (State.MUTED, State.UNMONITORED):
            raise TraceError(f"not now: the job is {self._job.machine.state.value}")
        if not nodes:
            raise TraceError("not now: no rank is seen yet")
        self._trace = TraceRun(request.id, float(request.fields.get("seconds", TRACE_S)), nodes, now_s)
        self.outgoing.append(self._trace.order)
        nodes_text = "1 node" if len(nodes) == 1 else f"{len(nodes)} nodes"
        return f"recording the calls on {nodes_text} for {self._trace.order.seconds:g} s"

    def _tell_ab(self, data: dict[str, Any]) -> None:
        self._emit("ab", self._due_s, data, iteration=self._job.iteration)

    def _stop_ab(self, why: str) -> str:
        if self._ab is None:
            return "no comparison is under way"
        self.outgoing.append(self._ab.stop(why))
        self._ab = None
        return f"stopped: {why}"
