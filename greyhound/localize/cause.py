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
_DISKS = ("input", "storage")
_CLEAR = 0.2  # weight from which evidence decides
_GPU_SEEN = 0.1

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

    A CPU quota that held its rank back makes all but a link a `cpu` (a `gpu` only if its own figures are well). Between
    the kinds of a host, a rank's own wait for disks decides; that of its threads for a CPU is common and decides only
    where the times tell nothing.
    """
    found = list(hints)
    quota = max((hint.weight for hint in found if hint.by == QUOTA), default=0.0)
    if kind == "gpu":
        return "cpu" if quota >= _CLEAR and kinds(found).get("gpu", 0.0) < _GPU_SEEN else kind
    if kind not in _OF_HOSTS:
        return kind
    telling = [hint for hint in found if hint.by == QUOTA or (hint.scope == "rank" and hint.kind in _DISKS)]
    weights = kinds(found if kind == "unknown" else telling)
    strongest = max(weights, key=lambda name: weights[name], default=kind)
    return strongest if weights.get(strongest, 0.0) >= max(_CLEAR, 2 * weights.get(kind, 0.0)) else kind


def unknown(evidence: Evidence) -> tuple[str, ...]:
    """What nothing is known of, and why; for a verdict's notes."""
    return tuple(f"{source}: n/a ({why})" for source, why in sorted(evidence.absent.items()))
