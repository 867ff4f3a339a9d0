"""Each fault on each layout: the right component and kind, or nobody; never an innocent."""

import numpy as np
import pytest

from greyhound.localize.judge import judge
from greyhound.localize.start import judge_start
from greyhound.testdata.pipeline import Conditions, Layout, profiles
from tests.localize.scenes import LAYOUTS, SCENES, Score, draw, gpu, possible, verdict

SMALL = [name for name in LAYOUTS if LAYOUTS[name].ranks <= 8]
BOTH = [(name, scene) for name in SMALL for scene in SCENES if possible(LAYOUTS[name], scene)]
NEEDS_REFERENCE = ("late loaders", "slow checkpoints", "all GPUs")


def conditions(rng):
    """What a real training may be like."""
    return {
        "jitter": rng.uniform(0.02, 0.06),
        "run_ahead": bool(rng.random() < 0.5),
        "overlap": bool(rng.random() < 0.5),
        "clock_s": {0: 0.3, 1: -360.0},
    }


def played(layout, scene, seed, reference=True, iterations=8):
    rng = np.random.default_rng(seed)
    drawn = draw(layout, SCENES[scene], rng, iterations, **conditions(rng))
    return drawn.truth, verdict(drawn, reference)


@pytest.mark.parametrize(("layout", "scene"), BOTH)
def test_with_a_reference_the_component_is_named(layout, scene):
    truth, found = played(LAYOUTS[layout], scene, 1)
    score = Score()
    score.count(truth, found, scene)
    assert not score.wrong
    assert score.right == 1, found


@pytest.mark.parametrize(("layout", "scene"), BOTH)
def test_without_a_reference_nobody_innocent_is_named(layout, scene):
    truth, found = played(LAYOUTS[layout], scene, 2, reference=False)
    score = Score()
    score.count(truth, found, scene)
    assert not score.wrong
    alone = scene == "data link" and layout == "FSDP 4"  # the only communicator: nothing to compare it with
    assert score.right == (not alone and scene not in NEEDS_REFERENCE), found


@pytest.mark.parametrize("scene", ["GPU at 0.67", "stage link, one way"])
def test_hundreds_of_ranks(scene):
    truth, found = played(LAYOUTS["TP8 DP4 PP4"], scene, 3, iterations=3)
    score = Score()
    score.count(truth, found, scene)
    assert score.right == 1, found


@pytest.mark.parametrize("layout", SMALL)
def test_slow_from_the_start_is_found_by_comparison(layout):
    rng = np.random.default_rng(4)
    conditions, truth = gpu(0.85)(LAYOUTS[layout], rng)
    found = judge_start(profiles(LAYOUTS[layout], conditions, rng, 8))
    assert [suspect.ranks for suspect in found.suspects] == [tuple(truth.ranks)]
    assert found.suspects[0].kind == "gpu"
    assert found.suspects[0].ratio == pytest.approx(1 / 0.85, rel=0.06)


def test_healthy_trainings_have_no_verdict():
    """Short streams; two hundred are judged by `make scenarios`."""
    for seed in range(15):
        rng = np.random.default_rng(seed)
        layout = LAYOUTS[SMALL[seed % len(SMALL)]]
        settings = Conditions(**conditions(rng), ragged=0.2 if seed % 3 == 0 else 0.0)
        now = profiles(layout, settings, rng, 5)
        assert judge(now).suspects == ()
        assert judge_start(now).suspects == ()


def test_a_fail_slow_that_has_ended_blames_nobody():
    rng = np.random.default_rng(5)
    layout = LAYOUTS["DP4 PP2"]
    found = judge(profiles(layout, Conditions(), rng, 5), profiles(layout, Conditions(), rng, 5), 0.2)
    assert found.suspects == ()
    assert "ended" in found.abstained


def test_a_loss_that_is_not_explained_is_called_so():
    rng = np.random.default_rng(6)
    layout = LAYOUTS["DP4 PP2"]
    now = profiles(layout, Conditions(gpu={1: 0.8}), rng, 8)
    found = judge(now, None, 0.4)
    assert found.suspects == ()
    assert found.abstained.startswith("unexplained")
    assert any("rank 1" in note for note in found.notes), "the evidence is there"


def test_links_say_what_they_can():
    rng = np.random.default_rng(7)
    pair = Layout(2, 2, 2, 2)
    (link,) = judge(profiles(pair, Conditions(link={(0, 2): 5.0}), rng, 6)).suspects
    assert (link.nodes, link.ranks, link.peer) == ((0, 1), (0, 2), 2)
    ring = Layout(1, 4, 2, 1)
    (link,) = judge(profiles(ring, Conditions(link={(0, 1): 5.0}), rng, 6)).suspects
    assert (link.nodes, link.peer) == ((0, 1, 2, 3), -1)
    assert any("can't be told" in reason for reason in link.reasons)
    (link,) = judge(profiles(ring, Conditions(link={(4, 0): 8.0}), rng, 6)).suspects
    assert set(link.ranks) == {0, 4}


def test_a_pause_that_nobody_reported_is_no_news():
    """A routine profile may hold a checkpoint that the one before didn't."""
    rng = np.random.default_rng(8)
    layout = LAYOUTS["DP4 PP2"]
    before = profiles(layout, Conditions(), rng, 5)
    now = profiles(layout, Conditions(checkpoint_s=2.0, checkpoint_every=4), rng, 5)
    assert judge(now, before).suspects == ()
    found = judge(now, before, 0.4)
    assert [(suspect.kind, suspect.nodes) for suspect in found.suspects] == [("storage", ())]
