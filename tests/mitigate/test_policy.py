"""The ski rental: when it acts, what it passes over, that it never flaps, and what it may cost at most."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from greyhound.mitigate import policy
from greyhound.mitigate.policy import Config, Decision, State, Strategy

CONFIG = Config()
S2, S3, S4 = Strategy("S2", 1.0), Strategy("S3", 60.0), Strategy("S4", 900.0)
ALL = (S4, S2, S3)


def slow_for(
    count: int, kind: str = "gpu", strategies: tuple[Strategy, ...] = ALL, slow_s: float = 1.5, healthy_s: float = 1.0
) -> list[tuple[int, Decision]]:
    """Which actions are made at which iterations, each without effect."""
    state, made = State(), []
    for number in range(1, count + 1):
        state, decision = policy.step(state, kind, slow_s, healthy_s, strategies, CONFIG)
        if decision is not None:
            made.append((number, decision))
            state = policy.acted(state, decision.strategy)
    return made


def test_each_action_waits_for_its_own_cost_since_the_one_before():
    made = slow_for(3000)
    assert [(number, decision.strategy) for number, decision in made] == [(2, "S2"), (122, "S3"), (1922, "S4")]
    assert [decision.loss_s for _, decision in made] == [1.0, 60.0, 900.0]
    assert made[0][1].reason == "1.0 s lost since it began, S2 costs 1 s"


def test_a_link_is_not_mended_by_micro_batches():
    made = slow_for(200, "link")
    assert [decision.strategy for _, decision in made] == ["S3"]
    assert made[0][1].passed_over["S2"] == "doesn't help against a slow link"


@pytest.mark.parametrize("kind", ["input", "storage", "unknown"])
def test_what_no_strategy_helps_against_is_left_alone(kind):
    assert slow_for(10_000, kind) == []


def test_what_cannot_be_used_or_gains_nothing_is_passed_over_with_its_reason():
    strategies = (Strategy("S2", 1.0, gain=0.01), Strategy("S3", 60.0, why_not="needs attach(build=...)"), S4)
    made = slow_for(2000, strategies=strategies)
    assert [decision.strategy for _, decision in made] == ["S4"]
    assert made[0][1].passed_over == {"S2": "would remove 1% of the loss only", "S3": "needs attach(build=...)"}


def test_measured_costs_replace_the_defaults():
    costs = policy.measured(policy.DEFAULT_COST_S, "S3", 12.5)
    assert costs["S3"] == 12.5 and costs["S4"] == policy.DEFAULT_COST_S["S4"]
    assert policy.measured(costs, "S3", math.nan) == costs


@pytest.mark.parametrize(("iteration_s", "healthy_s"), [(math.nan, 1.0), (math.inf, 1.0), (2.0, 0.0), (0.5, 1.0)])
def test_times_that_say_nothing_are_no_loss(iteration_s, healthy_s):
    assert policy.loss_of(iteration_s, healthy_s) == 0.0


@pytest.mark.parametrize(("name", "cost_s"), [("S5", 1.0), ("S2", -1.0), ("S2", math.nan), ("S2", math.inf)])
def test_impossible_strategies_are_refused(name, cost_s):
    with pytest.raises(ValueError, match=name):
        Strategy(name, cost_s)


def test_recovery_is_undone_after_a_dwell_and_s4_never():
    state = State(taken=("S2", "S4"))
    state, decision = policy.recovered(state, 100.0, ALL, CONFIG)
    assert decision is None
    state, decision = policy.recovered(state, 129.0, ALL, CONFIG)
    assert decision is None
    state, decision = policy.recovered(state, 130.0, ALL, CONFIG)
    assert decision is not None and (decision.strategy, decision.undo) == ("S2", True)
    state, decision = policy.recovered(policy.undone(state, "S2"), 9999.0, ALL, CONFIG)
    assert decision is None and state.taken == ("S4",)


def test_a_component_that_comes_and_goes_is_undone_ever_later():
    state, now_s, waits = State(taken=("S2",)), 0.0, []
    for _ in range(10):
        state, _ = policy.recovered(state, now_s, ALL, CONFIG)
        begun_s = now_s
        decision = None
        while decision is None:
            now_s += 1.0
            state, decision = policy.recovered(state, now_s, ALL, CONFIG)
        waits.append(now_s - begun_s)
        state, _ = policy.step(state, "gpu", 1.5, 1.0, ALL, CONFIG)  # back before it was taken back
    assert waits[:4] == [30.0, 60.0, 120.0, 240.0] and waits[-1] == CONFIG.most_dwell_s


# -- the bound ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Levels:
    """Costs of the actions in seconds, ascending; seconds lost a second before any of them and after each."""

    costs_s: tuple[float, ...]
    rates: tuple[float, ...]

    def clairvoyant_s(self, duration_s: float) -> float:
        """The best single action at once (or none), knowing how long it lasts."""
        at_once = zip((0.0, *self.costs_s), self.rates, strict=True)
        return min(cost_s + rate * duration_s for cost_s, rate in at_once)

    def policy_s(self, duration_s: float, iteration_s: float) -> float:
        """What `policy.step` makes of it, iteration by iteration."""
        strategies = tuple(Strategy(name, cost) for name, cost in zip(("S2", "S3", "S4"), self.costs_s, strict=False))
        state, paid_s, level = State(), 0.0, 0
        for _ in range(round(duration_s / iteration_s)):
            lost_s = self.rates[level] * iteration_s
            paid_s += lost_s
            state, decision = policy.step(state, "gpu", 1.0 + lost_s, 1.0, strategies, CONFIG)
            if decision is not None:
                assert decision.strategy == strategies[level].name
                state, level = policy.acted(state, decision.strategy), level + 1
                paid_s += decision.cost_s
        return paid_s


def assert_bounded(levels: Levels, duration_s: float) -> None:
    iteration_s = duration_s / 300
    # A level ends with the iteration that reaches its cost, and may be over it by that iteration.
    slack_s = sum(levels.rates) * iteration_s
    best_s = levels.clairvoyant_s(duration_s)
    assert levels.policy_s(duration_s, iteration_s) <= policy.bound(levels.costs_s) * (best_s + slack_s) + 1e-9


@given(
    st.lists(st.floats(0.5, 4000), min_size=1, max_size=3, unique=True),
    st.lists(st.floats(0.0, 0.9), min_size=4, max_size=4),
    st.floats(10, 40_000),
)
def test_the_bound_holds_whatever_the_costs(costs_s, rates, duration_s):
    ordered = tuple(sorted(costs_s))
    assert_bounded(Levels(ordered, tuple(sorted(rates, reverse=True)[: len(ordered) + 1])), duration_s)


def test_ten_thousand_episodes_with_the_real_costs_stay_within_the_bound():
    """Durations from seconds to ten hours (log-uniform), slow-downs from 1.05x to 10x, actions of any effect."""
    draw = np.random.default_rng(7)
    costs_s = tuple(policy.DEFAULT_COST_S.values())
    assert policy.bound(costs_s) == pytest.approx(2 * (1 + 61 / 900))
    assert policy.bound(costs_s[-1:]) == 2.0
    worst = {1: 0.0, 3: 0.0}
    for count in range(10_000):
        actions = (costs_s[-1:], costs_s)[count % 2]
        duration_s = float(np.exp(draw.uniform(np.log(5), np.log(36_000))))
        first = float(draw.uniform(0.05, 0.9))
        rates = (first, *sorted(first * draw.uniform(0, 1, len(actions)), reverse=True))
        levels = Levels(actions, rates)
        paid_s, best_s = levels.policy_s(duration_s, duration_s / 60), levels.clairvoyant_s(duration_s)
        slack_s = sum(rates) * duration_s / 60
        worst[len(actions)] = max(worst[len(actions)], paid_s / (best_s + slack_s))
    assert worst[1] <= 2.0 and worst[3] <= policy.bound(costs_s)
    assert worst[3] > 1.2, "episodes so easy that the bound isn't tried"
