"""A verdict with what the nodes measured of their hardware and system: reasons, and what isn't known. Pure."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from greyhound.control.fields import text
from greyhound.localize import cause
from greyhound.localize.cause import Hint
from greyhound.localize.cause_evidence import Evidence, from_message
from greyhound.localize.identity import normal_bus
from greyhound.localize.model import RankProfile, Suspect, Verdict

HINTS_SHOWN, NOTES_SHOWN = 3, 3
MOST_NODES = 8  # of a suspect, that are looked at

log = logging.getLogger(__name__)


def read(sent: Mapping[int, Mapping[str, Any]]) -> dict[int, Evidence]:
    """What the nodes sent, by node; a node's that can't be read is left out."""
    found = {}
    for node, raw in sent.items():
        if not raw:
            continue
        try:
            found[node] = from_message(dict(raw))
        except ValueError as error:
            log.warning("evidence of node %d refused: %s", node, error)
    return found


def identity(sent: Mapping[int, Mapping[str, Any]], node: int, bus: str) -> dict[str, str] | None:
    """How a repair ticket names a GPU; None where its node didn't say."""
    table = sent.get(node, {}).get("identity")
    row = table.get(normal_bus(bus)) if isinstance(table, dict) and bus else None
    if not isinstance(row, dict):
        return None
    return {name: text(value) for name, value in row.items() if isinstance(value, str)}


def explained(
    verdict: Verdict, profiles: Sequence[RankProfile], now: Mapping[int, Evidence], healthy: Mapping[int, Evidence]
) -> Verdict:
    """The verdict with the strongest hints among each suspect's reasons, and notes on what nothing is known of."""
    suspects = tuple(_explained(suspect, profiles, now, healthy) for suspect in verdict.suspects)
    nodes = {node for suspect in suspects for node in suspect.nodes[:MOST_NODES]}
    unknown = [note for node in sorted(nodes & now.keys()) for note in cause.unknown(now[node])]
    return replace(verdict, suspects=suspects, notes=(*verdict.notes, *list(dict.fromkeys(unknown))[:NOTES_SHOWN]))


def _explained(
    suspect: Suspect, profiles: Sequence[RankProfile], now: Mapping[int, Evidence], healthy: Mapping[int, Evidence]
) -> Suspect:
    hints: list[Hint] = []
    for node in suspect.nodes[:MOST_NODES]:
        if node in now:
            peers = [evidence for other, evidence in now.items() if other != node]
            hints += _own(suspect, node, cause.compare(healthy.get(node), now[node], peers), profiles)
    hints = sorted(dict.fromkeys(hints), key=lambda hint: -hint.weight)
    kind = cause.told_kind(suspect.kind, hints)
    reasons = dict.fromkeys(hint.text for hint in hints)
    return replace(suspect, kind=kind, reasons=(*suspect.reasons, *list(reasons)[:HINTS_SHOWN]))


def _own(suspect: Suspect, node: int, hints: Sequence[Hint], profiles: Iterable[RankProfile]) -> list[Hint]:
    """Those of the suspect's own parts: of a link the node's network ports, else its ranks, their GPUs and node."""
    if suspect.kind == "link":
        return list(cause.of_nic(hints))
    ours = [profile for profile in profiles if profile.node == node and profile.rank in suspect.ranks]
    return [hint for profile in ours for hint in cause.of_rank(hints, profile.key, normal_bus(profile.bus))]
