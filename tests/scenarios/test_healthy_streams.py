"""Two hundred healthy trainings, drawn: nobody may be named, not even where somebody asks (make scenarios)."""

from collections.abc import Iterator

import numpy as np
import pytest

from greyhound.localize.judge import judge
from greyhound.localize.model import Verdict
from greyhound.testdata.pipeline import Conditions, Layout, profiles
from tests.scenarios import localisation_page

pytestmark = [pytest.mark.scenario]
RUNS = 200
ITERATIONS = 5
LAYOUTS = (
    Layout(2, 2, 2, 2),
    Layout(1, 4, 2, 2),
    Layout(1, 4, 1, 2, sharded=True),
    Layout(1, 8, 1, 8),
    Layout(2, 4, 4, 8, micro_batches=8),
)
WHAT = (
    "`greyhound.testdata.pipeline`: five layouts of 4 to 32 ranks, jitter of 2 to 8 %, ragged micro-batches in a third "
    "of them, clocks milliseconds to seconds apart; each judged three times: at iteration 50, against the profile "
    "before, and as if a fail-slow of 10 % had been reported"
)


def conditions(rng: np.random.Generator, nodes: int) -> Conditions:
    """Of one healthy training."""
    return Conditions(
        clock_s={node: float(rng.normal(0.0, rng.choice((0.005, 2.0), p=(0.8, 0.2)))) for node in range(nodes)},
        ragged=float(rng.uniform(0.1, 0.3)) if rng.random() < 0.33 else 0.0,
        jitter=float(rng.uniform(0.02, 0.08)),
        run_ahead=bool(rng.random() < 0.7),
        overlap=bool(rng.random() < 0.3),
    )


def verdicts(seed: int) -> Iterator[tuple[str, Verdict]]:
    """What is said of one training: of its first profile, of a later one, and of one that was taken for nothing."""
    rng = np.random.default_rng(seed)
    layout = LAYOUTS[seed % len(LAYOUTS)]
    how = conditions(rng, -(-layout.ranks // layout.per_node))
    first, later, asked = (profiles(layout, how, rng, ITERATIONS) for _ in range(3))
    iteration_s = float(np.median(first[0].iteration_s))
    yield "at iteration 50", judge(first)
    yield "against the profile before", judge(later, first)
    yield "as if a fail-slow had been reported", judge(asked, first, 0.1 * iteration_s)


def test_nobody_is_named_in_two_hundred_healthy_trainings() -> None:
    named = [
        f"run {seed} ({LAYOUTS[seed % len(LAYOUTS)]}), {when}: {verdict.suspects}"
        for seed in range(RUNS)
        for when, verdict in verdicts(seed)
        if verdict.suspects
    ]
    runs = {text.split()[1] for text in named}
    localisation_page.add_streams({"what": WHAT, "runs": RUNS, "verdicts": len(runs)})
    assert named == []
