"""Slow from the start: by comparison of the ranks, or of the whole job with an earlier run."""

from dataclasses import replace

import numpy as np
import pytest

from greyhound.localize.start import Shape, judge_start, shape_of
from greyhound.testdata.pipeline import Conditions, Layout, profiles

LAYOUT = Layout(1, 4, 2, 2)
EVERYBODY = range(LAYOUT.ranks)
SLOW = {
    "gpu": Conditions(gpu=dict.fromkeys(EVERYBODY, 0.7)),
    "cpu": Conditions(host=dict.fromkeys(EVERYBODY, 40.0), run_ahead=False),
    "input": Conditions(loader_s=dict.fromkeys(EVERYBODY, 0.2)),
    "link": Conditions(link={(a, b): 4.0 for a in EVERYBODY for b in EVERYBODY}),
}


def run(conditions, seed=1):
    return profiles(LAYOUT, conditions, np.random.default_rng(seed), 8)


@pytest.mark.parametrize("kind", SLOW)
def test_a_job_whose_components_are_all_slow_alike(kind):
    earlier = shape_of(run(replace(SLOW[kind], gpu={}, host={}, loader_s={}, link={})))
    (suspect,) = judge_start(run(SLOW[kind], 2), earlier=earlier).suspects
    assert (suspect.kind, suspect.nodes, suspect.ranks) == (kind, (), ())
    assert suspect.ratio > 1.1
    assert any("earlier runs" in reason for reason in suspect.reasons)


def test_the_gpus_are_told_where_nothing_else_is_large_enough():
    healthy, slow = run(Conditions()), run(SLOW["gpu"], 2)
    earlier_s = float(np.median(healthy[0].iteration_s))
    (suspect,) = judge_start(slow, earlier_s).suspects
    assert suspect.kind == "gpu"
    assert suspect.ratio == pytest.approx(np.median(slow[0].iteration_s) / earlier_s, rel=0.05)


def test_the_same_as_in_earlier_runs_is_no_news():
    healthy = run(Conditions())
    verdict = judge_start(run(Conditions(), 2), earlier=shape_of(healthy))
    assert verdict.suspects == ()
    assert verdict.abstained
    assert judge_start(healthy, float("nan")).suspects == ()
    assert judge_start(healthy, 0.0).suspects == ()


def test_one_slow_rank_is_named_before_all():
    rows = run(Conditions(gpu={3: 0.7}), 3)
    (suspect,) = judge_start(rows, 0.8 * float(np.median(rows[0].iteration_s))).suspects
    assert suspect.ranks == (3,)


def test_an_earlier_run_without_gpu_times_tells_no_kind():
    rows = [replace(row, timed=False) for row in run(Conditions())]
    assert shape_of(rows) is None
    (suspect,) = judge_start(rows, 0.5 * float(np.median(rows[0].iteration_s))).suspects
    assert (suspect.kind, suspect.nodes) == ("unknown", ())


def test_a_shape_is_what_an_iteration_is_made_of():
    shape = shape_of(run(Conditions()))
    assert isinstance(shape, Shape)
    assert 0 < shape.boundary_s < shape.gpu_s < shape.iteration_s
    assert 0 < shape.transfer_s < shape.iteration_s
