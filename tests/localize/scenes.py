"""Faults on modelled trainings, and what a verdict must say of them."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from greyhound.localize.judge import judge
from greyhound.localize.model import RankProfile, Verdict
from greyhound.testdata.pipeline import Conditions, Layout, profiles

LAYOUTS = {
    "TP2 DP2 PP2": Layout(2, 2, 2, 2),
    "DP4 PP2": Layout(1, 4, 2, 2),
    "FSDP 4": Layout(1, 4, 1, 2, sharded=True),
    "TP8 DP4 PP4": Layout(8, 4, 4, 8),
}


@dataclass(frozen=True)
class Truth:
    """What is to blame: (kind, nodes) of each component; several kinds where they can't be told apart."""

    blamed: tuple[tuple[tuple[str, ...], frozenset[int]], ...] = ()
    ranks: frozenset[int] = frozenset()
    reference: bool = True


@dataclass
class Score:
    """How the verdicts fared."""

    right: int = 0
    abstained: int = 0
    wrong: list[str] = field(default_factory=list)

    @property
    def drawn(self) -> int:
        """All of them."""
        return self.right + self.abstained + len(self.wrong)

    def count(self, truth: Truth, verdict: Verdict, label: str) -> None:
        """One verdict; whoever is named besides the truth is an innocent."""
        if not verdict.suspects:
            self.abstained += bool(truth.blamed)
            self.right += not truth.blamed
            return
        left = list(truth.blamed)
        for suspect in verdict.suspects:
            fits = [row for row in left if suspect.kind in row[0] and frozenset(suspect.nodes) == row[1]]
            if not fits or (suspect.kind == "gpu" and suspect.ranks and not set(suspect.ranks) <= truth.ranks):
                self.wrong.append(f"{label}: {suspect}")
                return
            left.remove(fits[0])
        self.right += not left
        self.abstained += bool(left)


Scene = Callable[[Layout, np.random.Generator], tuple[Conditions, Truth]]


def _node(layout: Layout, *ranks: int) -> frozenset[int]:
    return frozenset(rank // layout.per_node for rank in ranks)


def gpu(speed: float) -> Scene:
    """One slow GPU."""

    def scene(layout: Layout, rng: np.random.Generator) -> tuple[Conditions, Truth]:
        rank = int(rng.integers(layout.ranks))
        return Conditions(gpu={rank: speed}), Truth(((("gpu",), _node(layout, rank)),), frozenset({rank}))

    return scene


def two_gpus(layout: Layout, rng: np.random.Generator) -> tuple[Conditions, Truth]:
    """In different stages."""
    a, b = (
        layout.rank(int(rng.integers(layout.tp)), int(rng.integers(layout.dp)), stage) for stage in (0, layout.pp - 1)
    )
    blamed = ((("gpu",), _node(layout, a)), (("gpu",), _node(layout, b)))
    return Conditions(gpu={a: 0.5, b: 0.55}), Truth(blamed, frozenset({a, b}))


def _data_ring(layout: Layout, rng: np.random.Generator) -> list[int]:
    if layout.sharded:
        return list(range(layout.ranks))
    tp, pp = int(rng.integers(layout.tp)), int(rng.integers(layout.pp))
    return [layout.rank(tp, dp, pp) for dp in range(layout.dp)]


def data_link(layout: Layout, rng: np.random.Generator) -> tuple[Conditions, Truth]:
    """A slow link of a data parallel ring."""
    ring = _data_ring(layout, rng)
    at = int(rng.integers(len(ring)))
    pair = ring[at], ring[(at + 1) % len(ring)]
    return Conditions(link={pair: 5.0}), Truth(((("link",), _node(layout, *ring)),))


def stage_link(directions: int) -> Scene:
    """A slow link between two stages, one way or both."""

    def scene(layout: Layout, rng: np.random.Generator) -> tuple[Conditions, Truth]:
        stage = int(rng.integers(layout.pp - 1))
        tp, dp = int(rng.integers(layout.tp)), int(rng.integers(layout.dp))
        ends = layout.rank(tp, dp, stage), layout.rank(tp, dp, stage + 1)
        ways = [ends, ends[::-1]] if directions == 2 else [ends if rng.random() < 0.5 else ends[::-1]]
        return Conditions(link=dict.fromkeys(ways, 8.0)), Truth(((("link",), _node(layout, *ends)),))

    return scene


def busy_host(layout: Layout, rng: np.random.Generator) -> tuple[Conditions, Truth]:
    """CPU contention on all ranks of a node."""
    node = int(rng.integers(layout.ranks // layout.per_node))
    ranks = range(node * layout.per_node, (node + 1) * layout.per_node)
    factor = 40.0 if layout.tp > 1 or layout.sharded else 100.0
    return Conditions(host=dict.fromkeys(ranks, factor)), Truth(((("cpu",), frozenset({node})),))


def late_loader(layout: Layout, rng: np.random.Generator) -> tuple[Conditions, Truth]:
    """One rank's data come late."""
    rank = int(rng.integers(layout.ranks))
    return Conditions(loader_s={rank: 0.15}), Truth(((("input",), _node(layout, rank)),))


def late_loaders(layout: Layout, rng: np.random.Generator) -> tuple[Conditions, Truth]:
    """Everybody's data come late."""
    return Conditions(loader_s=dict.fromkeys(range(layout.ranks), 0.15)), Truth(((("input", "storage"), frozenset()),))


def slow_checkpoints(layout: Layout, rng: np.random.Generator) -> tuple[Conditions, Truth]:
    """All ranks write for longer, now and then."""
    every = int(rng.integers(1, 4))
    conditions = Conditions(checkpoint_s=0.3 * every, checkpoint_every=every)
    return conditions, Truth(((("input", "storage"), frozenset()),))


def ragged(layout: Layout, rng: np.random.Generator) -> tuple[Conditions, Truth]:
    """Sequences of differing lengths."""
    return Conditions(ragged=0.3), Truth()


def compound(layout: Layout, rng: np.random.Generator) -> tuple[Conditions, Truth]:
    """A slow GPU, and a slow link elsewhere."""
    rank = 0
    ring = [layout.rank(layout.tp - 1, dp, layout.pp - 1) for dp in range(layout.dp)]
    blamed = ((("gpu",), _node(layout, rank)), (("link",), _node(layout, *ring)))
    return Conditions(gpu={rank: 0.6}, link={(ring[0], ring[1]): 6.0}), Truth(blamed, frozenset({rank}))


def all_gpus(layout: Layout, rng: np.random.Generator) -> tuple[Conditions, Truth]:
    """All slow alike."""
    return Conditions(gpu=dict.fromkeys(range(layout.ranks), 0.7)), Truth(((("gpu",), frozenset()),))


def nothing(layout: Layout, rng: np.random.Generator) -> tuple[Conditions, Truth]:
    """Healthy."""
    return Conditions(), Truth()


SCENES: dict[str, Scene] = {
    "GPU at 0.5": gpu(0.5),
    "GPU at 0.67": gpu(0.67),
    "two GPUs": two_gpus,
    "data link": data_link,
    "stage link": stage_link(2),
    "stage link, one way": stage_link(1),
    "busy host": busy_host,
    "late loader": late_loader,
    "late loaders": late_loaders,
    "slow checkpoints": slow_checkpoints,
    "ragged": ragged,
    "GPU and link": compound,
    "all GPUs": all_gpus,
    "nothing": nothing,
}


def possible(layout: Layout, scene: str) -> bool:
    """Whether a layout can have that fault."""
    if layout.pp == 1:
        return scene not in ("two GPUs", "stage link", "stage link, one way", "GPU and link")
    return True


def lost_s(now: list[RankProfile], before: list[RankProfile]) -> float:
    """What the tracker would say is lost an iteration."""

    def typical(rows: list[RankProfile]) -> float:
        return float(np.median([np.mean(row.iteration_s) for row in rows]))

    return typical(now) - typical(before)


@dataclass(frozen=True)
class Drawn:
    """Profiles of a scene, before and after the fault."""

    now: list[RankProfile]
    before: list[RankProfile]
    truth: Truth


def draw(layout: Layout, scene: Scene, rng: np.random.Generator, iterations: int = 5, **how: object) -> Drawn:
    """A scene under common conditions `how` (of Conditions)."""
    conditions, truth = scene(layout, rng)
    conditions = replace(conditions, **how)  # type: ignore[arg-type]
    healthy = replace(conditions, gpu={}, host={}, loader_s={}, link={}, checkpoint_s=0.0)
    healthy = replace(healthy, run_ahead=conditions.run_ahead)
    return Drawn(profiles(layout, conditions, rng, iterations), profiles(layout, healthy, rng, iterations), truth)


def verdict(drawn: Drawn, reference: bool = True) -> Verdict:
    """As the master asks for it when a fail-slow was reported."""
    lost = lost_s(drawn.now, drawn.before)
    if lost < 0.02 * float(np.median(drawn.before[0].iteration_s)):
        return judge(drawn.now, drawn.before if reference else None)  # no fail-slow: a routine profile
    return judge(drawn.now, drawn.before if reference else None, lost)
