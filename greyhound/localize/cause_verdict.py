"""A verdict with the evidence of its nodes: reasons for each suspect, and its kind where the evidence tells it better.

    verdict = explain(judge(...), profiles, healthy evidence by node, evidence by node now)

Times decide which rank or link is slow; evidence adds why. What a host is late for (`cpu`, `input`, `storage`) shows in
no time of a call, so there the strongest evidence decides. A `gpu` becomes `cpu` only where a CPU quota held back its
rank.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from greyhound.localize.cause import Hint, compare, kinds, of_nic, of_rank, unknown
from greyhound.localize.cause_evidence import Evidence
from greyhound.localize.model import RankProfile, Suspect, Verdict

MOST_REASONS = 6
_OF_HOSTS = ("cpu", "input", "storage", "unknown")
_STRONG = 0.1  # weight from which evidence decides between the kinds of a host
_QUOTA_S = 0.2  # a second: a rank held back so much is slow for that, whatever else its times look like


def explain(
    verdict: Verdict,
    profiles: Sequence[RankProfile],
    healthy: Mapping[int, Evidence],
    now: Mapping[int, Evidence],
) -> Verdict:
    """The same suspects with evidence; nodes without any (by index) are left as they are."""
    hints = {
        node: compare(healthy.get(node), evidence, [other for index, other in now.items() if index != node])
        for node, evidence in now.items()
    }
    suspects = tuple(_explained(suspect, profiles, hints, now) for suspect in verdict.suspects)
    return replace(verdict, suspects=suspects, notes=(*verdict.notes, *_missing(now)))


def _explained(
    suspect: Suspect,
    profiles: Sequence[RankProfile],
    hints: Mapping[int, tuple[Hint, ...]],
    now: Mapping[int, Evidence],
) -> Suspect:
    ranks = [profile for profile in profiles if profile.rank in suspect.ranks and profile.node in suspect.nodes]
    found = {profile.rank: of_rank(hints.get(profile.node, ()), profile.key, profile.bus) for profile in ranks}
    if suspect.kind == "link":
        texts = [text for node in suspect.nodes for text in _nic_texts(hints.get(node, ()))]
        texts += _texts({rank: [hint for hint in own if hint.kind == "link"] for rank, own in found.items()})
        return replace(suspect, reasons=_with(suspect.reasons, texts))
    kind = _kind(suspect.kind, [hint for own in found.values() for hint in own], ranks, now)
    mine = {rank: [hint for hint in own if _belongs(hint, kind)] for rank, own in found.items()}
    return replace(suspect, kind=kind, reasons=_with(suspect.reasons, _texts(mine)))


def _kind(kind: str, hints: Sequence[Hint], ranks: Iterable[RankProfile], now: Mapping[int, Evidence]) -> str:
    weights = kinds(hint for hint in hints if hint.kind in _OF_HOSTS)
    if kind == "gpu":
        held = [now[one.node].get("rank", one.key, "throttled_s") or 0.0 for one in ranks if one.node in now]
        # All its ranks, and no GPU that is slow by its own figures as well.
        quota = bool(held) and min(held) >= _QUOTA_S and "cpu" in weights
        return "cpu" if quota and kinds(hints).get("gpu", 0.0) < _STRONG else kind
    if kind in _OF_HOSTS and weights:
        strongest = max(weights, key=lambda name: weights[name])
        if weights[strongest] >= max(_STRONG, 2 * weights.get(kind, 0.0)):
            return strongest
    return kind


def _belongs(hint: Hint, kind: str) -> bool:
    """Evidence of the suspect's kind; a host's and a GPU's links may explain any of their kinds."""
    return (
        hint.kind == kind or (kind in _OF_HOSTS and hint.kind in _OF_HOSTS) or (kind == "gpu" and hint.scope == "gpu")
    )


def _texts(by_rank: Mapping[int, Sequence[Hint]]) -> list[str]:
    """Strongest first; what holds for the whole node is told once."""
    rows = [(hint, rank) for rank, own in by_rank.items() for hint in own]
    rows.sort(key=lambda row: -row[0].weight)
    return list(
        dict.fromkeys(hint.text if hint.scope == "node" else f"rank {rank}: {hint.text}" for hint, rank in rows)
    )


def _nic_texts(hints: Iterable[Hint]) -> list[str]:
    return [f"{hint.name}: {hint.text}" for hint in of_nic(hints)]


def _with(reasons: tuple[str, ...], texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*reasons, *list(texts)[:MOST_REASONS]]))


def _missing(now: Mapping[int, Evidence]) -> list[str]:
    """What isn't known on any node alike is told once, without the nodes' numbers."""
    counts: dict[str, int] = {}
    for evidence in now.values():
        for text in unknown(evidence):
            counts[text] = counts.get(text, 0) + 1
    return [text if count == len(now) else f"{text} on {count} of {len(now)} nodes" for text, count in counts.items()]
