"""What a `verdict` event adds to its episode: component, cause, evidence, and what else was slow. Pure."""

from typing import Any

from greyhound.control.summary import component_name
from greyhound.report.values import MANY, number, text, texts, whole

_TEXTS = ("kind", "node", "bus", "peer")


def verdict_details(event: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    """Fields of an EpisodeRecord. The component is that of the worst suspect; of the others there are words alone."""
    raw, suspects = event.get("component"), _suspects(data)
    component: dict[str, Any] = raw if isinstance(raw, dict) else {}
    worst = suspects[0] if suspects else {}
    abstained = text(data.get("abstained"))
    return {
        **{key: text(component.get(key)) for key in _TEXTS},
        "rank": whole(component.get("rank")),
        "cause": text(data.get("cause")) or text(worst.get("cause")),
        "share": number(worst.get("share")),
        "evidence": texts(worst.get("reasons")) or ((f"not attributed: {abstained}",) if abstained else ()),
        "also": tuple(filter(None, map(_words, suspects[1:]))),
    }


def _suspects(data: dict[str, Any]) -> list[dict[str, Any]]:
    raw = data.get("suspects")
    return [row for row in raw[:MANY] if isinstance(row, dict)] if isinstance(raw, list) else []


def _words(suspect: dict[str, Any]) -> str:
    nodes, kind = [*texts(suspect.get("nodes")), "", ""], text(suspect.get("kind"))
    where = component_name(nodes[0], text(suspect.get("bus")), nodes[1] if kind == "link" else "")
    return f"{kind} {where} {number(suspect.get('ratio')):.2f}x".replace("  ", " ").strip()
