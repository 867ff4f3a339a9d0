"""Replicas' speeds out of profiles and plugins' words, and what a split of them gains."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greyhound.localize.model import RankProfile
from greyhound.mitigate import replicas, roles
from greyhound.mitigate.roles import Role


def profile(key, own_s):
    return RankProfile(0, key, 0, "", "w", True, (1.0,) * len(own_s), tuple(own_s), (0.0,), (0.0,))


def role(replica, split=(4, 4), **fields):
    return Role(replica, len(split), tuple(split), **fields)


ROLES = {"a": role(0), "b": role(0), "c": role(1), "d": role(1)}


def test_a_replica_is_as_slow_as_its_slowest_rank():
    profiles = [profile("a", [4.0, 4.4, 4.2]), profile("b", [2.0]), profile("c", [1.0]), profile("d", [8.0, 8.0])]
    assert replicas.times_s(profiles, ROLES) == pytest.approx([1.05, 2.0])


@pytest.mark.parametrize("own_s", [[], [math.nan], [0.0], [-1.0]])
def test_a_replica_without_a_usable_time_is_not_guessed(own_s):
    assert replicas.times_s([profile("a", [4.0]), profile("c", own_s)], ROLES) is None
    assert replicas.times_s([], ROLES) is None


def test_times_under_an_uneven_split_are_of_a_micro_batch():
    uneven = {"a": role(0, (6, 2), plan=1), "c": role(1, (6, 2), plan=1)}
    assert replicas.times_s([profile("a", [6.0]), profile("c", [4.0])], uneven) == [1.0, 2.0]


def test_ranks_must_agree():
    assert roles.agreed(ROLES, list(ROLES)).total == 8
    with pytest.raises(roles.RolesError, match="1 of 5 ranks don't use"):
        roles.agreed(ROLES, [*ROLES, "e"])
    with pytest.raises(roles.RolesError, match="different plans"):
        roles.agreed(ROLES | {"d": role(1, (6, 2), plan=1)}, list(ROLES))
    with pytest.raises(roles.RolesError, match="don't cover 2 replicas"):
        roles.agreed({"a": role(0)}, ["a"])
    with pytest.raises(roles.RolesError, match="no rank"):
        roles.agreed({}, [])


def test_a_slow_replica_gets_fewer():
    best = replicas.best_split([1.0, 3.0], role(0))
    assert best is not None and best.microbatches == (6, 2)
    assert replicas.gain_of(best, [1.0, 3.0], role(0)) == pytest.approx(0.75)


def test_equal_replicas_are_left_alone_and_healed_ones_evened_again():
    assert replicas.best_split([1.0, 1.005], role(0)) is None
    back = replicas.best_split([1.0, 1.0], role(0, (6, 2), plan=1))
    assert back is not None and back.microbatches == (4, 4)
    assert replicas.are_alike([1.0, 1.04], 0.05) and not replicas.are_alike([1.0, 1.0, 1.2], 0.05)


@given(st.lists(st.floats(0.01, 100), min_size=2, max_size=8), st.integers(1, 12))
def test_a_split_is_never_worse_and_its_gain_is_a_share(times, each):
    current = role(0, (each,) * len(times))
    best = replicas.best_split(times, current)
    if best is not None:
        assert sum(best.microbatches) == current.total and best.makespan < best.even_makespan
        assert 0.0 <= replicas.gain_of(best, times, current) <= 1.0


def test_a_multiple_that_does_not_fit_is_no_plan():
    assert replicas.best_split([1.0, 3.0], role(0, (5, 5), multiple=4)) is None
