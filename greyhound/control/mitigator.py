"""The master's side of mitigation: the ski rental (mitigate.policy) makes actions of verdicts, and takes them back.

In this release S2: micro-batches are split by the replicas' measured speeds, in a training that uses greyhound.megatron
and runs under `--greyhound=on`. While a split is in force the ranks are profiled every CHECK_S, since the iteration
time no longer tells whether the component is healthy again.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from greyhound.control.events import Emit
from greyhound.control.job import Job
from greyhound.control.messages import Data
from greyhound.control.plan_message import PlanOrder, PluginWord
from greyhound.localize.model import RankProfile
from greyhound.mitigate import policy, replicas
from greyhound.mitigate.microbatches import Split
from greyhound.mitigate.policy import Decision, State, Strategy
from greyhound.mitigate.roles import Role, RolesError, agreed

CHECK_S = 20.0
TAKEN_WITHIN_S, TAKEN_WITHIN_ITERATIONS = 60.0, 5.0  # the ranks agree on a plan within three iterations
ALIKE = 0.05  # replicas whose speeds differ by less are equal: the noise of a profile
MOST_STEPS = 1000  # iterations that are counted at once, after a while in which nothing was heard

log = logging.getLogger(__name__)


class Profiles(Protocol):
    """What mitigation needs of localisation: the latest profiles and their number, and new ones when it asks."""

    @property
    def latest(self) -> tuple[int, list[RankProfile]]: ...

    def want(self) -> None: ...


@dataclass
class _Pending:
    """A plan on its way to the ranks; `decision` is None for a change of a split that is in force already."""

    order: PlanOrder
    decision: Decision | None
    since_s: float


@dataclass
class _Action:
    """The fail-slow that is being mitigated."""

    episode: str
    kind: str
    state: State = field(default_factory=State)


class Mitigator:
    """`step` once a round; what the analyzers must be told is in `outgoing` until it was sent."""

    def __init__(self, job: Job, profiles: Profiles, emit: Emit, config: policy.Config | None = None) -> None:
        self._job = job
        self._profiles = profiles
        self._emit = emit
        self._config = config or policy.Config()
        self._roles: dict[str, Role] = {}
        self._action: _Action | None = None
        self._pending: _Pending | None = None
        self._newest: PlanOrder | None = None
        self._costs_s = dict(policy.DEFAULT_COST_S)
        self._why_not = ""
        self._iteration = 0
        self._checked = 0
        self._switched = False
        self._check_at_s = 0.0
        self._passed_over: dict[str, str] = {}
        self.outgoing: list[Data] = []

    def take(self, node: int, word: PluginWord) -> None:
        """What the plugins of a node tell."""
        told = {f"{node}:{row.key}": role for row in word.ranks if (role := row.role()) is not None}
        others = {key: role for key, role in self._roles.items() if not key.startswith(f"{node}:")}
        self._roles = others | told

    def new_bus(self) -> None:
        """The analyzers find another Redis, which doesn't know of the plan."""
        if self._newest is not None:
            self.outgoing = [self._newest]

    def step(self, now_s: float, mono_s: float) -> None:
        """Count what was lost, act where it is due, look whether what was done must be taken back."""
        iterations = min(max(self._job.iteration - self._iteration, 0), MOST_STEPS)
        self._iteration = self._job.iteration
        if self._pending is not None:
            self._follow_plan(self._pending, now_s, mono_s)
        elif self._job.mode == "on":
            self._find_fail_slow()
            if self._action is not None:
                self._follow(self._action, iterations, now_s, mono_s)
        elif self._action is not None:
            self._give_back(self._action, now_s, mono_s)

    # -- what is slow -------------------------------------------------------------------------------------

    def _find_fail_slow(self) -> None:
        current, verdict = self._job.merger.current, self._job.verdict
        if self._action is not None and not self._action.state.taken and current is None:
            self._action = None  # it ended before anything was done
        if current is None or not verdict or verdict.get("episode") != current.id or not verdict.get("suspects"):
            return
        if self._action is None:
            self._action = _Action(current.id, str(verdict["suspects"][0]["kind"]))

    def _follow(self, action: _Action, iterations: int, now_s: float, mono_s: float) -> None:
        if action.state.taken:
            self._look_after(action, now_s, mono_s)
            return
        if iterations == 0:
            return
        strategies, healthy_s = self._strategies(), self._job.healthy_s
        for _ in range(iterations):
            action.state, decision = policy.step(
                action.state, action.kind, self._job.iteration_s, healthy_s, strategies, self._config
            )
            if decision is not None:
                self._act(decision, now_s, mono_s)
                return
        self._note_passed_over(action, strategies, now_s)

    def _note_passed_over(self, action: _Action, strategies: Sequence[Strategy], now_s: float) -> None:
        """Once a fail-slow: why nothing can be done about it."""
        useful, passed_over = policy.open_strategies(action.kind, strategies, (), self._config)
        if not useful and passed_over != self._passed_over:
            self._passed_over = passed_over
            data = {"strategy": "S1", "reason": "nothing else helps", "passed_over": passed_over}
            self._emit("plan", now_s, data, action.episode, self._job.iteration)

    # -- S2 -----------------------------------------------------------------------------------------------

    def _speeds(self) -> tuple[Role, list[float]]:
        """(what all ranks agree on, seconds a micro-batch takes each replica). RolesError where that isn't known."""
        if self._why_not:
            raise RolesError(self._why_not)
        living = [key for key, sample in self._job.samples.items() if sample.alive]
        role = agreed(self._roles, living)
        _, profiles = self._profiles.latest
        keyed = [replace(profile, key=f"{profile.node}:{profile.key}") for profile in profiles]
        # Not of ranks that ended: there may have been another number of replicas then.
        times_s = replicas.times_s(keyed, {key: self._roles[key] for key in living})
        if times_s is None:
            raise RolesError("the replicas' speeds aren't known yet")
        return role, times_s

    def _split(self) -> tuple[Role, list[float], Split | None]:
        role, times_s = self._speeds()
        return role, times_s, replicas.best_split(times_s, role)

    def _strategies(self) -> list[Strategy]:
        try:
            role, times_s, best = self._split()
        except RolesError as error:
            return [Strategy("S2", self._costs_s["S2"], str(error))]
        gain = replicas.gain_of(best, times_s, role) if best is not None else 0.0
        return [Strategy("S2", self._costs_s["S2"], gain=gain)]

    def _act(self, decision: Decision, now_s: float, mono_s: float) -> None:
        role, times_s, best = self._split()
        if best is None:
            return
        figures = {
            "strategy": decision.strategy,
            "loss_s": round(decision.loss_s, 3),
            "cost_s": round(decision.cost_s, 3),
            "gain": None if decision.gain is None else round(decision.gain, 3),
            "reason": decision.reason,
            "passed_over": dict(decision.passed_over),
        }
        self._plan(role, best.microbatches, times_s, decision, now_s, mono_s, figures)

    def _plan(
        self,
        role: Role,
        microbatches: Sequence[int],
        times_s: Sequence[float],
        decision: Decision | None,
        now_s: float,
        mono_s: float,
        figures: dict[str, Any],
    ) -> None:
        assert self._action is not None
        number = max(role.plan, self._newest.number if self._newest else 0) + 1
        order = PlanOrder(number, list(microbatches))
        self._newest, self._pending = order, _Pending(order, decision, mono_s)
        self.outgoing = [order]
        data = {
            **figures,
            "number": number,
            "microbatches": order.microbatches,
            "micro_batch_s": [round(seconds, 6) for seconds in times_s],
        }
        self._emit("plan", now_s, data, self._action.episode, self._job.iteration)

    def _follow_plan(self, pending: _Pending, now_s: float, mono_s: float) -> None:
        living = [key for key, sample in self._job.samples.items() if sample.alive]
        followed = [key for key in living if key in self._roles and self._roles[key].plan == pending.order.number]
        if living and len(followed) == len(living):
            self._pending = None
            self._taken(pending, now_s, mono_s)
        elif mono_s - pending.since_s > max(TAKEN_WITHIN_S, TAKEN_WITHIN_ITERATIONS * self._job.iteration_s):
            if pending.decision is None or pending.decision.undo:
                return  # a split is in force: only ranks that take the next one end it
            self._pending = None
            self._why_not = f"plan {pending.order.number} was taken by {len(followed)} of {len(living)} ranks only"
            self._job.notice(f"{self._why_not}; no more plans are made")

    def _taken(self, pending: _Pending, now_s: float, mono_s: float) -> None:
        assert self._action is not None
        action, decision = self._action, pending.decision
        kind = "undo" if decision is not None and decision.undo else "action"
        data = {
            "strategy": "S2",
            "number": pending.order.number,
            "microbatches": pending.order.microbatches,
            "after_s": round(mono_s - pending.since_s, 3),
        }
        self._emit(kind, now_s, data, action.episode, self._job.iteration)
        log.info("S2: %s", data)
        self._check_at_s, self._switched = mono_s + CHECK_S, True
        if decision is not None and not decision.undo:
            action.state = policy.acted(action.state, "S2")
        elif decision is not None:
            action.state = policy.undone(action.state, "S2")
            if not action.state.taken:
                self._action = None

    # -- while a split is in force ------------------------------------------------------------------------

    def _look_after(self, action: _Action, now_s: float, mono_s: float) -> None:
        if mono_s >= self._check_at_s:
            self._check_at_s, self._switched = mono_s + CHECK_S, False
            self._profiles.want()
        if self._switched:  # a profile that comes now was begun under the split before
            self._checked = self._profiles.latest[0]
        if self._profiles.latest[0] == self._checked:
            return
        self._checked = self._profiles.latest[0]
        try:
            role, times_s, best = self._split()
        except RolesError as error:
            log.info("S2: %s", error)
            return
        if not replicas.are_alike(times_s, ALIKE):
            self._still_slow(action, role, times_s, best, now_s, mono_s)
            return
        action.state, decision = policy.recovered(action.state, mono_s, self._strategies(), self._config)
        if decision is not None:
            even = [role.total // role.replicas] * role.replicas
            figures = {"strategy": "S2", "undo": True, "reason": decision.reason}
            self._plan(role, even, times_s, decision, now_s, mono_s, figures)

    def _give_back(self, action: _Action, now_s: float, mono_s: float) -> None:
        """The owner wants no more actions (`greyhound set`): what is in force is taken back."""
        if not action.state.taken:
            self._action = None
            return
        living = [key for key, sample in self._job.samples.items() if sample.alive]
        try:
            role = agreed(self._roles, living)
        except RolesError:
            return  # tried again at the next round
        reason = f"the mode is {self._job.mode} now"
        decision = Decision("S2", True, action.state.total_loss_s, self._costs_s["S2"], None, reason)
        even = [role.total // role.replicas] * role.replicas
        self._plan(role, even, [], decision, now_s, mono_s, {"strategy": "S2", "undo": True, "reason": reason})

    def _still_slow(
        self, action: _Action, role: Role, times_s: list[float], best: Split | None, now_s: float, mono_s: float
    ) -> None:
        """It may have become more or less severe: the split follows, at no other cost than a switch."""
        if action.state.healthy_since_s is not None:
            action.state = replace(action.state, healthy_since_s=None, relapses=action.state.relapses + 1)
        if best is not None:
            figures = {"strategy": "S2", "reason": "the replicas' speeds have changed"}
            self._plan(role, best.microbatches, times_s, None, now_s, mono_s, figures)
