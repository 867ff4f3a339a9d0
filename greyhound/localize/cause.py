"""Why a component is slow: what changed in the figures of its node, as hints with words. No clock, no I/O.

    hints = compare(of a healthy time, of the slow time, of the other nodes)      # cause_evidence.Evidence each
    own = of_rank(hints, rank's key, its GPU's bus id)                            # strongest first
    told_kind(suspect's kind, own)                                                # the kind that evidence shows
    [hint.text for hint in own]                                                   # a verdict's reasons
    unknown(of the slow time)                                                     # a verdict's notes: what is n/a

A hint is evidence, no verdict: a NIC's congestion counters grow when other jobs share its link, a GPU at its power cap
may be as fast as ever. It tells kinds apart (cpu against gpu) and gives reasons for what the times have shown.
Without a healthy time (slow from the start) a GPU's clock is compared with those of the other GPUs alone.
"""

from collections.abc import Callable, Iterable, Sequence

from greyhound.localize import cause_gpu, cause_host
from greyhound.localize.cause_evidence import Evidence
from greyhound.localize.cause_place import QUOTA, Hint, Place
from greyhound.localize.identity import normal_bus

__all__ = ["Hint", "compare", "kinds", "of_nic", "of_rank", "told_kind", "unknown"]

_OF_HOSTS = ("cpu", "input", "storage", "unknown")
_STRONG = 0.1  # weight from which evidence decides between the kinds of a host
_QUOTA = 0.2  # a rank held back so much is slow for that, whatever else its times look like

_RULES: dict[str, tuple[Callable[[Place], Iterable[Hint]], ...]] = {
    "gpu": cause_gpu.RULES,
    "rank": cause_host.RANK_RULES,
    "node": cause_host.NODE_RULES,
    "nic": cause_host.NIC_RULES,
}


def compare(before: Evidence | None, slow: Evidence, peers: Sequence[Evidence] = ()) -> tuple[Hint, ...]:
    """All that a node's figures point to, strongest first.

    `before` is of a healthy time of the same node, None where there is none; `peers` are the other nodes', slow time.
    """
    hints: list[Hint] = []
    for scope, rules in _RULES.items():
        for name in slow.names(scope):
            place = Place(scope, name, slow, before)
            for rule in rules:
                hints += rule(place)
    hints += cause_gpu.slow_beside_others(before, slow, peers)
    return tuple(sorted(hints, key=lambda hint: -hint.weight))


def of_rank(hints: Iterable[Hint], key: str, bus: str) -> tuple[Hint, ...]:
    """Those of a rank, its GPU (MIG instances included) and its whole node; not its neighbours', nor the network's."""
    bus = normal_bus(bus)
    return tuple(
        hint
        for hint in hints
        if (hint.scope == "rank" and hint.name == key)
        or (hint.scope == "gpu" and bus and hint.name.split("/")[0] == bus)
        or hint.scope == "node"
    )


def of_nic(hints: Iterable[Hint], port: str = "") -> tuple[Hint, ...]:
    """Those of a network port ("mlx5_0/1"), or of all of the node's."""
    return tuple(hint for hint in hints if hint.scope == "nic" and port in ("", hint.name))


def kinds(hints: Iterable[Hint]) -> dict[str, float]:
    """The strongest weight by kind."""
    found: dict[str, float] = {}
    for hint in hints:
        found[hint.kind] = max(found.get(hint.kind, 0.0), hint.weight)
    return found


def told_kind(kind: str, hints: Iterable[Hint]) -> str:
    """What a suspect of this kind is by the evidence of its ranks (`of_rank` of each).

    What a host is late for shows in no time of a call, so there the strongest evidence decides. A `gpu` is a `cpu` only
    where a CPU quota held its rank back and its own figures are well. Links, and kinds without evidence, stay.
    """
    found = list(hints)
    weights = kinds(hint for hint in found if hint.kind in _OF_HOSTS)
    if kind == "gpu":
        held = max((hint.weight for hint in found if hint.scope == "rank" and hint.by == QUOTA), default=0.0)
        return "cpu" if held >= _QUOTA and kinds(found).get("gpu", 0.0) < _STRONG else kind
    if kind in _OF_HOSTS and weights:
        strongest = max(weights, key=lambda name: weights[name])
        if weights[strongest] >= max(_STRONG, 2 * weights.get(kind, 0.0)):
            return strongest
    return kind


def unknown(evidence: Evidence) -> tuple[str, ...]:
    """What nothing is known of, and why; for a verdict's notes."""
    return tuple(f"{source}: n/a ({why})" for source, why in sorted(evidence.absent.items()))
