"""A verdict as events and status carry it, and as people read it. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from greyhound.control.events import Component
from greyhound.localize.identity import Identity
from greyhound.localize.model import Suspect, Verdict

SHOWN = 4  # names in a line
SUSPECTS_KEPT, REASONS_KEPT, NOTES_KEPT = 16, 8, 8
MEMBERS_KEPT = 64
_LETTERS = 300
_IDENTITY = ("node", "bus", "gpu", "uuid", "serial", "nic", "switch")


def suspect_data(suspect: Suspect, names: Mapping[int, str]) -> dict[str, Any]:
    """One suspect; `names` of the nodes by index."""
    return {
        "kind": suspect.kind,
        "nodes": [names.get(node, f"node {node}") for node in suspect.nodes[:MEMBERS_KEPT]],
        "ranks": list(suspect.ranks[:MEMBERS_KEPT]),
        "rank_count": len(suspect.ranks),
        "bus": suspect.bus or None,
        "peer": suspect.peer if suspect.peer >= 0 else None,
        "ratio": round(suspect.ratio, 3),
        "share": round(suspect.share, 3),
        "confidence": round(suspect.confidence, 3),
        "reasons": [reason[:_LETTERS] for reason in suspect.reasons[:REASONS_KEPT]],
    }


def verdict_data(verdict: Verdict, names: Mapping[int, str]) -> dict[str, Any]:
    """All of it, worst suspect first."""
    return {
        "suspects": [suspect_data(suspect, names) for suspect in verdict.suspects[:SUSPECTS_KEPT]],
        "explained": round(verdict.explained, 3),
        "abstained": verdict.abstained[:_LETTERS] or None,
        "notes": [note[:_LETTERS] for note in verdict.notes[:NOTES_KEPT]],
    }


def component(suspect: Mapping[str, Any]) -> Component:
    """Where to look: of a link both its ends; what many share (a storage, all GPUs) is no single component."""
    nodes, ranks = suspect["nodes"], suspect["ranks"]
    ends = 2 if suspect["kind"] == "link" else 1
    node = nodes[0] if 0 < len(nodes) <= ends else None
    return Component(
        kind=suspect["kind"],
        node=node,
        bus=suspect["bus"] if node else None,
        rank=ranks[0] if node and len(ranks) == 1 else None,
        peer=nodes[1] if node and len(nodes) > 1 else None,
    )


def same_suspects(one: Mapping[str, Any] | None, other: Mapping[str, Any]) -> bool:
    """Whether two verdicts name the same components."""
    return one is not None and _named(one) == _named(other)


def _named(data: Mapping[str, Any]) -> set[tuple[Any, ...]]:
    return {(row["kind"], tuple(row["nodes"]), tuple(row["ranks"]), row["bus"]) for row in data["suspects"]}


def _some(values: Sequence[object], count: int = 0) -> str:
    left_out = max(count, len(values)) - SHOWN
    return ", ".join(map(str, values[:SHOWN])) + (f" and {left_out} more" if left_out > 0 else "")


def _ranks(suspect: Mapping[str, Any]) -> str:
    ranks, count = suspect["ranks"], int(suspect["rank_count"])
    return ("rank " if count == 1 else "ranks ") + _some(ranks, count) if ranks else ""


def suspect_text(suspect: Mapping[str, Any]) -> str:
    """`n3 GPU 0000:0b:00.0 (rank 5): 1.90x, explains 97 %`."""
    nodes, ranks = _some(suspect["nodes"]), _ranks(suspect)
    of_ranks = f" ({ranks})" if ranks else ""
    on, everywhere = f" on {nodes}" if nodes else "", nodes or "all nodes"
    kind = suspect["kind"]
    if kind == "gpu":
        text = f"{nodes} GPU {suspect['bus']}{of_ranks}" if suspect["bus"] else f"GPUs of {everywhere}{of_ranks}"
    elif kind == "link":
        which = ("the links of", "a link within", "the link between")[min(len(suspect["nodes"]), 2)]
        text = f"{which} {everywhere}{of_ranks}"
    elif kind == "cpu":
        text = f"the CPUs of {everywhere}{of_ranks}"
    elif kind == "input":
        text = f"data loading{on}{of_ranks}"
    elif kind == "storage":
        text = f"storage: checkpoints{on}{of_ranks}"
    else:
        text = f"{everywhere}{of_ranks}, cause unknown"
    return f"{text}: {suspect['ratio']:.2f}x, explains {100 * suspect['share']:.0f} %"


def identity_text(suspect: Mapping[str, Any]) -> str:
    """How a repair ticket names a suspect's GPU; empty where its node didn't say."""
    told = suspect.get("identity")
    known = (
        {name: told[name] for name in _IDENTITY if isinstance(told.get(name), str)} if isinstance(told, dict) else {}
    )
    return Identity(**known).text() if {"node", "bus"} <= known.keys() else ""


def verdict_text(data: Mapping[str, Any], episode: str | None) -> str:
    """One line: what a fail-slow is (or, without an episode, what is slow beside it), or why nobody is named."""
    if data["suspects"]:
        named = "; ".join(suspect_text(suspect) for suspect in data["suspects"][:SHOWN])
        left_out = len(data["suspects"]) - SHOWN
        more = f"; and {left_out} more" if left_out > 0 else ""
        return f"fail-slow {episode} is {named}{more}" if episode else f"slow without a change: {named}{more}"
    why = data["abstained"] or "no component stands out"
    return f"fail-slow {episode}: can't tell: {why}" if episode else f"nothing is slow that can be named: {why}"
