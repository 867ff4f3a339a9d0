"""When to do what about a fail-slow: the ski rental of the paper (section 3, Algorithm 1), several levels deep.

How bad it is can be measured, how long it will last can't. So each action waits until the job has lost as much as the
action costs, counted from the action before it (the paper's text counts from the start of the episode).

The bound. Let c_1 < c_2 < ... be the costs of the actions that are open, and let none of them make the job slower. The
total of losses and action costs is then at most 2 (1 + s) times that of somebody who knows the duration beforehand and
takes the best single action at once, s being the largest of (c_1 + ... + c_(i-1)) / c_i; so 2 with one action.
Proof: after j actions the total is at most 2 (c_1 + ... + c_j) + L, L < c_(j+1) being the loss since the last one. An
action i <= j at once costs c_i, and at level k >= i, whose rate isn't higher than that after i, the loss c_(k+1) was
reached: at least c_i + ... + c_j + L. The total is at most twice that, and 2 (c_1 + ... + c_(i-1)) more. An action
i > j at once costs at least c_(j+1) > L, and the total is at most 2 (c_1 + ... + c_j) + c_(j+1).

Pure: no clock, no I/O. Every decision carries the figures on which it was made.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

COMPUTE = frozenset({"gpu", "cpu"})
COMMUNICATION = frozenset({"link"})
WORKS_FOR = {"S2": COMPUTE, "S3": COMPUTE | COMMUNICATION, "S4": COMPUTE | COMMUNICATION}
"""Which kinds of components each strategy helps against (the paper's table in section 3); S1 is to do nothing."""
DEFAULT_COST_S = {"S2": 1.0, "S3": 60.0, "S4": 900.0}
"""Until the first use tells: a switch of micro-batches, a move of topology, a checkpoint with restart and queue."""
UNDONE_ON_RECOVERY = ("S2", "S3")


@dataclass(frozen=True)
class Strategy:
    """One that exists in this job. `why_not`: empty where it can be used now.

    `cost_s`: seconds that the action itself takes from the job; `gain`: the share of the loss that it is expected to
    remove, 0 to 1, where that can be computed beforehand (S2: from the split), None where not.
    """

    name: str
    cost_s: float
    why_not: str = ""
    gain: float | None = None

    def __post_init__(self) -> None:
        if self.name not in WORKS_FOR:
            raise ValueError(f"unknown strategy {self.name!r}; there are {', '.join(WORKS_FOR)}")
        if not (math.isfinite(self.cost_s) and self.cost_s >= 0):
            raise ValueError(f"strategy {self.name}: a cost of {self.cost_s} s; it must be a number from 0 on")


@dataclass(frozen=True)
class Config:
    """`least_gain`: an action that is expected to remove less of the loss isn't made. `dwell_s`: a component must have
    been healthy for so long (and for as long as the action cost) before an action is undone; each relapse doubles it,
    up to `most_dwell_s`, so that a component that comes and goes doesn't make the job switch all the time."""

    least_gain: float = 0.05
    dwell_s: float = 30.0
    most_dwell_s: float = 3600.0


@dataclass(frozen=True)
class State:
    """What is remembered of one component's fail-slow; `taken` are the actions in force, in order."""

    taken: tuple[str, ...] = ()
    loss_s: float = 0.0
    total_loss_s: float = 0.0
    healthy_since_s: float | None = None
    relapses: int = 0


@dataclass(frozen=True)
class Decision:
    """An action to make (`undo`: to take back), and why. Seconds are the job's own; `gain` as in `Strategy`."""

    strategy: str
    undo: bool
    loss_s: float
    cost_s: float
    gain: float | None
    reason: str
    passed_over: Mapping[str, str] = field(default_factory=dict)


def loss_of(iteration_s: float, healthy_s: float) -> float:
    """Seconds that one iteration lost; nothing where either isn't known."""
    lost_s = iteration_s - healthy_s
    return lost_s if math.isfinite(lost_s) and healthy_s > 0 and lost_s > 0 else 0.0


def open_strategies(
    kind: str, strategies: Sequence[Strategy], taken: Sequence[str], config: Config
) -> tuple[list[Strategy], dict[str, str]]:
    """(those that may still help, cheapest first; why each other one is passed over)."""
    passed_over, useful = {}, []
    spent = max((s.cost_s for s in strategies if s.name in taken), default=-1.0)
    for strategy in sorted(strategies, key=lambda s: (s.cost_s, s.name)):
        why = _why_not(kind, strategy, taken, spent, config)
        if why:
            passed_over[strategy.name] = why
        else:
            useful.append(strategy)
    return useful, passed_over


def _why_not(kind: str, strategy: Strategy, taken: Sequence[str], spent_s: float, config: Config) -> str:
    if strategy.name in taken:
        return "in force"
    if kind not in WORKS_FOR[strategy.name]:
        return f"doesn't help against a slow {kind}"
    if strategy.why_not:
        return strategy.why_not
    if strategy.gain is not None and strategy.gain < config.least_gain:
        return f"would remove {max(strategy.gain, 0.0):.0%} of the loss only"
    if strategy.cost_s < spent_s:
        return "cheaper than what is in force"
    return ""


def step(
    state: State, kind: str, iteration_s: float, healthy_s: float, strategies: Sequence[Strategy], config: Config
) -> tuple[State, Decision | None]:
    """One slow iteration more of a component of `kind`; the action that is due now, if any.

    The caller makes the action and then calls `acted`; until then the same decision comes again.
    """
    lost_s = loss_of(iteration_s, healthy_s)
    relapsed = state.healthy_since_s is not None and bool(state.taken)
    state = replace(
        state,
        loss_s=state.loss_s + lost_s,
        total_loss_s=state.total_loss_s + lost_s,
        healthy_since_s=None,
        relapses=state.relapses + relapsed,
    )
    useful, passed_over = open_strategies(kind, strategies, state.taken, config)
    if not useful or state.loss_s < useful[0].cost_s:
        return state, None
    first = useful[0]
    since = state.taken[-1] if state.taken else "it began"
    reason = f"{state.loss_s:.1f} s lost since {since}, {first.name} costs {first.cost_s:g} s"
    return state, Decision(first.name, False, state.loss_s, first.cost_s, first.gain, reason, passed_over)


def acted(state: State, strategy: str) -> State:
    """The action was made: losses count anew."""
    return replace(state, taken=(*state.taken, strategy), loss_s=0.0)


def dwell_s(state: State, strategy: Strategy, config: Config) -> float:
    """How long the component must be healthy before the action is undone."""
    return min(config.most_dwell_s, max(config.dwell_s, strategy.cost_s) * 2.0 ** min(state.relapses, 30))


def recovered(
    state: State, now_s: float, strategies: Sequence[Strategy], config: Config
) -> tuple[State, Decision | None]:
    """The component is healthy at `now_s`, as a detector says it, not a single iteration; the action to take back now,
    if any, the latest first.

    The caller takes it back and then calls `undone`. With nothing left in force the episode is over.
    """
    since_s = now_s if state.healthy_since_s is None else state.healthy_since_s
    state = replace(state, healthy_since_s=since_s, loss_s=0.0)
    known = {strategy.name: strategy for strategy in strategies}
    latest = next((name for name in reversed(state.taken) if name in UNDONE_ON_RECOVERY and name in known), None)
    if latest is None:
        return state, None
    wait_s = dwell_s(state, known[latest], config)
    if now_s - since_s < wait_s:
        return state, None
    reason = f"healthy for {now_s - since_s:.0f} s, {wait_s:.0f} s were asked"
    return state, Decision(latest, True, state.total_loss_s, known[latest].cost_s, None, reason)


def undone(state: State, strategy: str) -> State:
    """The action was taken back."""
    return replace(state, taken=tuple(name for name in state.taken if name != strategy))


def measured(costs_s: Mapping[str, float], strategy: str, took_s: float) -> dict[str, float]:
    """The costs after a use that took `took_s`: what was measured replaces what was assumed."""
    if not (math.isfinite(took_s) and took_s >= 0):
        return dict(costs_s)
    return {**costs_s, strategy: took_s}


def bound(costs_s: Sequence[float]) -> float:
    """2 (1 + s) of the module's text for actions of these costs."""
    ordered = sorted(cost for cost in costs_s if cost > 0)
    before = [sum(ordered[:i]) / cost for i, cost in enumerate(ordered)]
    return 2.0 * (1.0 + max(before, default=0.0))
