"""What a verdict is worth: is the injected component named, of the right kind, and is nobody innocent? Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.scenarios.localisation_cases import Case, Culprit, Layout

RIGHT, PART, KIND, WRONG, ABSTAINED, SILENT = "right", "in part", "wrong kind", "WRONG", "abstained", "no verdict"


def node_of(gpu: str) -> str:
    """The node of NODE:INDEX."""
    return gpu.partition(":")[0]


def _nodes(culprit: Culprit) -> set[str]:
    return {node_of(gpu) for gpu in culprit.gpus}


def is_about(suspect: Mapping[str, Any], culprit: Culprit, layout: Layout) -> bool:
    """Whether a suspect is this component, whatever it is called.

    A GPU or a rank: that rank. A link: a pair with both ends, or a group in which both are, on no other nodes. A node's
    CPU: some of its ranks. What everybody shares: no node.
    """
    named, truth = set(suspect["ranks"]), {layout.rank(gpu) for gpu in culprit.gpus}
    nodes = set(suspect["nodes"])
    if not truth:
        return not nodes
    if not nodes or not nodes <= _nodes(culprit):
        return False
    if "link" in culprit.kinds and suspect["kind"] == "link":
        return truth <= named
    return named <= truth


def outcome(case: Case, layout: Layout, verdict: Mapping[str, Any] | None) -> str:
    """One of the words above; `verdict` is the event's data, None where none came."""
    if verdict is None:
        return SILENT if case.reported else (SILENT if case.culprits else RIGHT)
    suspects: Sequence[Mapping[str, Any]] = verdict["suspects"]
    if not case.culprits:
        return WRONG if any(suspect["nodes"] for suspect in suspects) else RIGHT
    if not suspects:
        return ABSTAINED
    about = [[is_about(suspect, culprit, layout) for culprit in case.culprits] for suspect in suspects]
    if not all(any(row) for row in about):
        return WRONG
    kinds = [
        suspect["kind"] in culprit.kinds
        for suspect, row in zip(suspects, about, strict=True)
        for culprit, is_it in zip(case.culprits, row, strict=True)
        if is_it
    ]
    if not all(kinds):
        return KIND
    return RIGHT if all(any(row[i] for row in about) for i in range(len(case.culprits))) else PART


def hang_outcome(case: Case, layout: Layout, fail_stop: Mapping[str, Any] | None) -> str:
    """A `fail_stop` event must name the rank that hangs, and nobody else."""
    if fail_stop is None:
        return SILENT
    component = fail_stop["component"] or {}
    (gpu,) = case.culprits[0].gpus
    if component.get("rank") is None and component.get("node") is None:
        return ABSTAINED
    wrong_rank = component.get("rank") not in (None, layout.rank(gpu))
    return WRONG if wrong_rank or component.get("node") not in (None, node_of(gpu)) else RIGHT
