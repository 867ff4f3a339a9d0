"""The exact split: against brute force, against the other solvers, and what it refuses."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from greyhound.mitigate.microbatches import PlanError, Request, even_split, makespan, split

TIMES = st.lists(st.floats(0.01, 100.0), min_size=1, max_size=4)


def brute_force(request):
    """The least makespan over all splits."""
    units, groups = request.total // request.multiple, len(request.times)
    best = float("inf")
    for head in itertools.product(range(1, units + 1), repeat=groups - 1):
        last = units - sum(head)
        counts = [count * request.multiple for count in (*head, last)]
        bounds = request.upper or [request.total] * groups
        if last >= 1 and all(count <= bound for count, bound in zip(counts, bounds, strict=True)):
            best = min(best, makespan(request.times, counts))
    return best


@st.composite
def requests(draw, bounded=False):
    times = tuple(draw(TIMES))
    multiple = draw(st.integers(1, 3))
    units = draw(st.integers(len(times), 9))
    upper = None
    if bounded:
        upper = tuple(draw(st.integers(multiple, multiple * units)) for _ in times)
        if sum(bound - bound % multiple for bound in upper) < units * multiple:
            upper = tuple(multiple * units for _ in times)
    return Request(times, units * multiple, multiple, upper)


@settings(max_examples=300)
@given(st.booleans().flatmap(lambda bounded: requests(bounded)))
def test_equals_brute_force(request):
    found = split(request)
    assert sum(found.microbatches) == request.total
    assert all(count >= 1 and count % request.multiple == 0 for count in found.microbatches)
    assert request.upper is None or all(c <= b for c, b in zip(found.microbatches, request.upper, strict=True))
    assert found.makespan == pytest.approx(brute_force(request), rel=1e-9)


@given(st.lists(st.floats(0.5, 3.0), min_size=1, max_size=64), st.integers(1, 20))
def test_is_never_worse_than_even(times, share):
    found = split(Request(tuple(times), share * len(times)))
    assert found.makespan <= found.even_makespan * (1 + 1e-12)
    assert sum(found.microbatches) == share * len(times)


@given(st.lists(st.integers(1, 5), min_size=2, max_size=30), st.integers(1, 12))
def test_equal_groups_get_equal_shares_but_for_one(times, share):
    found = split(Request(tuple(map(float, times)), share * len(times)))
    by_time = {}
    for time, count in zip(times, found.microbatches, strict=True):
        by_time.setdefault(time, []).append(count)
    assert all(max(counts) - min(counts) <= 1 for counts in by_time.values())


def test_the_case_where_the_quadratic_form_fails():
    assert split(Request((3.0, 1.0, 1.0, 1.0), 16)).makespan == 5.0
    crosschecks = pytest.importorskip("greyhound.mitigate.crosschecks")
    assert crosschecks.quadratic(Request((3.0, 1.0, 1.0, 1.0), 16)).makespan == 6.0


@settings(max_examples=12, deadline=None)
@given(st.lists(st.floats(0.5, 3.0), min_size=8, max_size=12), st.integers(2, 6))
def test_equals_the_mixed_integer_program_and_beats_the_quadratic_form(times, share):
    crosschecks = pytest.importorskip("greyhound.mitigate.crosschecks")
    request = Request(tuple(times), share * len(times))
    exact = split(request)
    assert exact.makespan == pytest.approx(crosschecks.milp(request).makespan, rel=1e-4)
    assert exact.makespan <= crosschecks.quadratic(request).makespan * (1 + 1e-9)


def test_even_splits_give_the_rest_to_the_first():
    assert even_split(Request((1.0, 1.0, 1.0), 8)) == (3, 3, 2)
    assert even_split(Request((1.0, 1.0), 8, 4)) == (4, 4)


def test_a_group_too_slow_for_any_gets_one_all_the_same():
    assert split(Request((100.0, 1.0, 1.0), 9)).microbatches == (1, 4, 4)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (((), 4), "no times"),
        (((1.0, 0.0), 4), "time 1 is 0.0"),
        (((1.0, -2.0), 4), "positive"),
        (((1.0, float("nan")), 4), "time 1"),
        (((1.0, float("inf")), 4), "at most"),
        (((1.0, 1.0, 1.0), 2), "each needs 1, 3 in all"),
        (((1.0, 1.0), 9, 2), "not divisible"),
        (((1.0, 1.0), 4, 4), "each needs 4, 8 in all"),
        (((1.0, 1.0), 0), "must be 1"),
        (((1.0, 1.0), 4, 0), "multiple 0"),
        (((1.0, 1e308), 4), "time 1"),
        (((1.0, 1.0), 8, 1, (4,)), "1 upper bounds for 2 groups"),
        (((1.0, 1.0), 8, 1, (4, 3)), "allow 7"),
        (((1.0, 1.0), 8, 2, (8, 1)), "below 2"),
    ],
)
def test_what_has_no_answer_is_refused_with_its_reason(arguments, words):
    with pytest.raises(PlanError, match=words):
        Request(*arguments)
