"""What must not matter to a verdict: the unit of time, the order of the ranks, the nodes' clocks."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from greyhound.localize.judge import judge
from greyhound.testdata.pipeline import Layout
from tests.localize.scenes import SCENES, draw, lost_s

LAYOUT = Layout(2, 2, 2, 2, micro_batches=2)
NAMES = ("iteration_s", "own_s", "host_s", "boundary_s")
TIMES = ("entry_ns", "start_ns", "end_ns")
SHOWN = ("GPU at 0.5", "two GPUs", "data link", "stage link", "busy host", "late loader", "GPU and link", "nothing")


def _drawn(scene):
    return draw(LAYOUT, SCENES[scene], np.random.default_rng(11), 5)


DRAWN = {scene: _drawn(scene) for scene in SHOWN}


def _call(call, scale=1.0, shift_ns=0):
    zero = 1_700_000_000_000_000_000
    return replace(call, **{name: zero + shift_ns + round((getattr(call, name) - zero) * scale) for name in TIMES})


def _row(row, scale=1.0, shift_ns=0):
    lists = {name: tuple(value * scale for value in getattr(row, name)) for name in NAMES}
    return replace(row, **lists, calls=tuple(_call(call, scale, shift_ns) for call in row.calls))


def essence(verdict):
    return [(s.kind, s.nodes, s.ranks, s.peer, pytest.approx(s.ratio, rel=1e-3)) for s in verdict.suspects]


@settings(max_examples=10, deadline=None)
@given(st.sampled_from(SHOWN), st.floats(0.1, 20.0))
def test_scaling_all_times_changes_nothing(scene, scale):
    drawn = DRAWN[scene]
    lost = lost_s(drawn.now, drawn.before) if drawn.truth.blamed else None
    there = judge(drawn.now, drawn.before, lost)
    scaled = [[_row(row, scale) for row in rows] for rows in (drawn.now, drawn.before)]
    here = judge(*scaled, lost * scale if lost is not None else None)
    assert essence(here) == essence(there)


@settings(max_examples=10, deadline=None)
@given(st.sampled_from(SHOWN), st.permutations(range(LAYOUT.ranks)))
def test_the_order_of_the_ranks_changes_nothing(scene, order):
    drawn = DRAWN[scene]
    there = judge(drawn.now, drawn.before)
    here = judge([drawn.now[index] for index in order], drawn.before)
    key = lambda row: (row[0], row[1], tuple(sorted(row[2])))  # noqa: E731
    assert sorted(map(key, essence(here))) == sorted(map(key, essence(there)))


@settings(max_examples=10, deadline=None)
@given(st.sampled_from(SHOWN), st.lists(st.integers(-400 * 10**9, 400 * 10**9), min_size=4, max_size=4))
def test_the_clocks_of_the_nodes_change_nothing(scene, shifts):
    drawn = DRAWN[scene]
    there = judge(drawn.now, drawn.before)
    here = judge([_row(row, shift_ns=shifts[row.node]) for row in drawn.now], drawn.before)
    assert essence(here) == essence(there)


@pytest.mark.parametrize("scene", SHOWN)
def test_renaming_ranks_renames_the_verdict(scene):
    drawn = DRAWN[scene]
    renamed = [replace(row, rank=100 - row.rank) for row in drawn.now]
    there = essence(judge(drawn.now, drawn.before))
    here = essence(judge(renamed, drawn.before))
    assert [{100 - rank for rank in row[2]} for row in here] == [set(row[2]) for row in there]


def test_the_drawn_scenes_are_told_apart():
    found = {scene: essence(judge(drawn.now, drawn.before)) for scene, drawn in DRAWN.items()}
    assert all(bool(rows) == (scene != "nothing") for scene, rows in found.items())
