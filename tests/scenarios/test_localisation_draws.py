"""Thousands of drawn faults on modelled trainings: right in nine of ten, and nobody innocent named (make scenarios)."""

import numpy as np
import pytest

from tests.localize.scenes import LAYOUTS, SCENES, Score, draw, possible, verdict

pytestmark = [pytest.mark.scenario]
DRAWS = 30
LARGE_DRAWS = 3  # of 128 ranks
ALIKE = ("late loaders", "slow checkpoints", "all GPUs")  # not to be seen by comparing ranks

EVERY = [(layout, scene) for layout in LAYOUTS for scene in SCENES if possible(LAYOUTS[layout], scene)]


def conditions(rng):
    """What a real training may be like."""
    return {
        "jitter": rng.uniform(0.02, 0.06),
        "run_ahead": bool(rng.random() < 0.5),
        "overlap": bool(rng.random() < 0.5),
        "clock_s": {0: 0.3, 1: -360.0},
    }


def played(layout, scene, reference):
    score = Score()
    for seed in range(DRAWS if LAYOUTS[layout].ranks <= 8 else LARGE_DRAWS):
        rng = np.random.default_rng([seed, len(scene), reference])
        drawn = draw(LAYOUTS[layout], SCENES[scene], rng, int(rng.integers(4, 9)), **conditions(rng))
        score.count(drawn.truth, verdict(drawn, reference), f"seed {seed}")
    print(f"{layout}, {scene}: {score.right} of {score.drawn} right, {score.abstained} abstained")
    return score


@pytest.mark.parametrize(("layout", "scene"), EVERY)
def test_against_a_reference(layout, scene):
    score = played(layout, scene, True)
    assert not score.wrong
    least = 0.9 if score.drawn > LARGE_DRAWS else 0.6
    assert score.right >= least * score.drawn


@pytest.mark.parametrize(("layout", "scene"), EVERY)
def test_by_comparing_ranks(layout, scene):
    score = played(layout, scene, False)
    assert not score.wrong
    if scene not in ALIKE and (layout, scene) != ("FSDP 4", "data link"):
        assert score.right >= 0.6 * score.drawn
