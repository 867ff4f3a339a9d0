"""What a node sends with its profiles: evidence of the window, and how a repair ticket names its GPUs."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, Protocol

from greyhound.control.evidence import EvidenceCollector, Target
from greyhound.localize.cause_evidence import as_message

MOST_GPUS = 32


class Followed(Protocol):
    """What is needed of a rank's watch."""

    @property
    def key(self) -> str: ...

    @property
    def pid(self) -> int: ...

    @property
    def bus(self) -> str: ...


class NodeEvidence:
    """Joins the collector with the analyzer (`follow`) and with the profiles (called by their thread)."""

    def __init__(self, collector: EvidenceCollector, node: str) -> None:
        """`node` as Slurm names it."""
        self._collector = collector
        self._node = node

    def follow(self, watches: Iterable[Followed]) -> None:
        """The ranks that are here now; those whose process can't be seen from here have no evidence of their own."""
        self._collector.follow(Target(watch.key, watch.pid, watch.bus) for watch in watches if watch.pid)

    def __call__(self, begin_s: float, end_s: float) -> dict[str, Any]:
        """For `ProfileDone.evidence`; wall clock."""
        evidence = as_message(self._collector.between(int(begin_s * 1e9), int(end_s * 1e9)))
        identities = sorted(self._collector.identities(self._node).items())[:MOST_GPUS]
        return {**evidence, "identity": {bus: asdict(identity) for bus, identity in identities}}
