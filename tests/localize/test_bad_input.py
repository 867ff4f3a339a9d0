"""Whatever the profiles hold, a verdict is an answer: it names no innocent and never fails."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from greyhound.localize.clocks import clocks_of
from greyhound.localize.judge import judge
from greyhound.localize.model import Communicator, RankProfile, TimedCall
from greyhound.localize.start import judge_start, shape_of
from greyhound.localize.table import calls_of
from greyhound.testdata.pipeline import Conditions, Layout, profiles

LAYOUT = Layout(2, 2, 2, 2)
NAMES = ("iteration_s", "own_s", "host_s", "boundary_s")


@pytest.fixture(scope="module")
def slow():
    """Rank 1's GPU is slow."""
    return profiles(LAYOUT, Conditions(gpu={1: 0.5}), np.random.default_rng(1), 6)


@pytest.fixture(scope="module")
def healthy():
    return profiles(LAYOUT, Conditions(), np.random.default_rng(2), 6)


def blamed(verdict):
    return [(suspect.kind, suspect.ranks) for suspect in verdict.suspects]


RIGHT = [("gpu", (1,))]


def test_no_profiles():
    assert judge([]).abstained
    assert judge([], [], 1.0).abstained
    assert judge_start([], 1.0).abstained
    assert shape_of([]) is None


def test_profiles_without_iterations(slow):
    empty = [replace(row, **dict.fromkeys(NAMES, ())) for row in slow]
    assert "no rank has finished" in judge(empty, slow, 1.0).abstained
    assert blamed(judge([*slow[:7], empty[7]])) == RIGHT


def test_one_rank_has_no_equals(slow):
    verdict = judge([slow[1]])
    assert verdict.suspects == ()
    assert verdict.abstained


def test_one_rank_against_its_reference():
    layout = Layout(1, 1, 1, 1)
    rng = np.random.default_rng(3)
    before = profiles(layout, Conditions(), rng, 6)
    now = profiles(layout, Conditions(gpu={0: 0.5}), rng, 6)
    lost_s = float(np.median(now[0].iteration_s) - np.median(before[0].iteration_s))
    assert blamed(judge(now, before, lost_s)) == [("gpu", (0,))]
    assert judge(now, None, lost_s).suspects == ()


def test_no_peers_in_a_pipeline_alone():
    layout = Layout(1, 1, 4, 1)
    rng = np.random.default_rng(4)
    before = profiles(layout, Conditions(), rng, 6)
    now = profiles(layout, Conditions(gpu={2: 0.5}), rng, 6)
    lost_s = float(np.median(now[0].iteration_s) - np.median(before[0].iteration_s))
    assert blamed(judge(now, before, lost_s)) == [("gpu", (2,))]
    assert judge(now, None, lost_s).suspects == (), "stages may differ by nature"


def test_groups_of_one_rank_change_nothing(slow):
    alone = [replace(row, comms=(*row.comms, Communicator(77 + row.rank, 1, 0))) for row in slow]
    assert blamed(judge(alone)) == RIGHT


def test_communicators_that_were_destroyed_meanwhile(slow, healthy):
    gone = [replace(row, comms=tuple(comm for comm in row.comms if comm.hash != 1000)) for row in slow]
    assert blamed(judge(gone, healthy)) in ([], RIGHT)
    assert blamed(judge(slow, [replace(row, comms=()) for row in healthy])) == RIGHT
    assert blamed(judge([replace(row, comms=()) for row in slow], healthy)) in ([], RIGHT)


@pytest.mark.parametrize("missing", range(8))
def test_ranks_that_are_missing(slow, healthy, missing):
    rest = [row for row in slow if row.rank != missing]
    expected = RIGHT if missing != 1 else []
    assert blamed(judge(rest)) == expected
    assert blamed(judge(rest, healthy, 0.2)) == expected
    assert blamed(judge(slow, [row for row in healthy if row.rank != missing], 0.2)) in ([], RIGHT)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, -1.0, 1e300, 0.0])
def test_impossible_seconds(slow, healthy, bad):
    one = [replace(row, **{name: (bad, *getattr(row, name)[1:]) for name in NAMES}) for row in slow]
    assert blamed(judge(one)) == RIGHT
    assert blamed(judge(one, healthy, 0.25)) in ([], RIGHT)
    all_bad = [replace(row, own_s=(bad,) * 6) for row in slow]
    assert judge(all_bad).suspects == ()


@pytest.mark.parametrize("bad", [0, -(10**15), 10**18 * 9, math.nan, math.inf])
def test_impossible_times_of_calls(slow, bad):
    def spoilt(row):
        calls = [replace(call, end_ns=bad) if i % 5 == 0 else call for i, call in enumerate(row.calls)]
        return replace(row, calls=tuple(calls))

    assert blamed(judge([spoilt(row) for row in slow])) == RIGHT


def test_a_clock_that_leaps_by_six_minutes(slow):
    def leapt(row, after):
        calls = tuple(
            replace(call, **{name: getattr(call, name) + 360 * 10**9 for name in ("entry_ns", "start_ns", "end_ns")})
            if i >= len(row.calls) * after
            else call
            for i, call in enumerate(row.calls)
        )
        return replace(row, calls=calls)

    for node in range(4):
        rows = [leapt(row, 0.5) if row.node == node else row for row in slow]
        verdict = judge(rows)
        assert blamed(verdict) == RIGHT
        assert any(f"the clock of node {node} leapt by 360 s" in note for note in verdict.notes), verdict.notes


def test_clocks_are_aligned_by_shared_collectives():
    errors = {0: 0.0, 1: 360.0, 2: -0.25, 3: 1e-3}
    rows = profiles(LAYOUT, Conditions(clock_s=errors), np.random.default_rng(5), 4)
    clocks = clocks_of(rows, calls_of(rows))
    assert clocks.offset_s == pytest.approx(errors, abs=1e-5)
    assert max(clocks.uncertainty_s.values()) < 1e-4
    first, last = (
        {(c.comm, c.seq): c.end_ns / 1e9 - clocks.offset_s[row.node] for c in row.calls if c.peer < 0}
        for row in (rows[0], rows[7])
    )
    shared = first.keys() & last.keys()
    assert shared and all(abs(first[call] - last[call]) < 20e-6 for call in shared)


def test_nodes_that_share_no_collective_stay_apart():
    rows = profiles(Layout(1, 1, 2, 1), Conditions(clock_s={1: 5.0}), np.random.default_rng(6), 4)
    rows = [replace(row, calls=tuple(call for call in row.calls if call.peer >= 0)) for row in rows]
    clocks = clocks_of(rows, calls_of(rows))
    assert clocks.offset_s == {0: 0.0}
    assert any("node 1" in note for note in clocks.notes)


def test_without_gpu_times_nobody_is_named_for_a_slow_gpu():
    rng = np.random.default_rng(7)
    rows = profiles(LAYOUT, Conditions(gpu={1: 0.5}, timed=False), rng, 6)
    verdict = judge(rows, None, 0.3)
    assert verdict.suspects == ()
    assert "GPU times are not known" in verdict.abstained


def test_without_gpu_times_a_slow_host_shows_by_coming_last():
    rng = np.random.default_rng(8)
    layout = Layout(1, 4, 1, 2, sharded=True)
    rows = profiles(layout, Conditions(host={2: 40.0}, timed=False, run_ahead=False), rng, 6)
    assert blamed(judge(rows)) in ([], [("unknown", (2,))])


def test_some_ranks_without_gpu_times(slow):
    rows = [replace(row, timed=row.rank not in (3, 6)) for row in slow]
    verdict = judge(rows)
    assert blamed(verdict) == RIGHT
    assert any("2 of 8 ranks" in note for note in verdict.notes)


def test_other_work_than_in_the_reference_is_not_compared(slow, healthy):
    other = [replace(row, work=row.work + " longer") for row in healthy]
    assert blamed(judge(slow, other)) == RIGHT, "ranks are compared with one another"


def test_what_a_verdict_holds_is_plain(slow):
    (suspect,) = judge(slow).suspects
    for name in ("ratio", "share", "confidence"):
        assert type(getattr(suspect, name)) is float
        assert math.isfinite(getattr(suspect, name))
    assert all(type(rank) is int for rank in (*suspect.ranks, *suspect.nodes))
    assert 0 < suspect.confidence <= 1 and 0 < suspect.share <= 1


_SECONDS = st.floats(allow_nan=True, allow_infinity=True)
_NS = st.integers(-(2**62), 2**62)
_CALLS = st.builds(
    TimedCall,
    st.integers(0, 3),
    st.integers(0, 5),
    st.sampled_from((1, 4, 5, 6, 9, 10, 16, 200)),
    st.integers(0, 2**40),
    st.integers(-2, 4),
    _NS,
    _NS,
    _NS,
)
_PROFILES = st.builds(
    RankProfile,
    st.integers(0, 2),
    st.sampled_from("abc"),
    st.integers(-1, 3),
    st.just(""),
    st.sampled_from(("x", "y", "")),
    st.booleans(),
    *[st.lists(_SECONDS, max_size=4).map(tuple)] * 4,
    st.lists(st.builds(Communicator, st.integers(0, 3), st.integers(-1, 4), st.integers(-1, 4)), max_size=4).map(tuple),
    st.lists(_CALLS, max_size=8).map(tuple),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(_PROFILES, max_size=5), st.none() | st.lists(_PROFILES, max_size=5), st.none() | _SECONDS)
def test_any_profiles_give_an_answer(now, reference, lost_s):
    verdict = judge(now, reference, lost_s)
    assert bool(verdict.suspects) != bool(verdict.abstained)
    judge_start(now, lost_s)
