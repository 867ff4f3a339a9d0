"""What a training's plugin (greyhound.megatron) tells, and the plans that it is to follow."""

from dataclasses import dataclass
from typing import Annotated

from greyhound.control.fields import list_of, whole
from greyhound.mitigate.roles import Role

MOST_REPLICAS = 4096


def _positive(value: object) -> int:
    if whole(value) < 1:
        raise ValueError("not a positive whole number")
    return whole(value)


Split = Annotated[list[int], list_of(_positive, MOST_REPLICAS)]


@dataclass(frozen=True)
class RoleRow:
    """One rank: its replica, the split in force, the multiple that each count needs, and the plan that it follows."""

    key: str
    replica: int
    microbatches: Split
    multiple: Annotated[int, _positive]
    plan: int

    def role(self) -> Role | None:
        """As planning takes it; None where the replica isn't one of the split."""
        if not 0 <= self.replica < len(self.microbatches):
            return None
        return Role(self.replica, len(self.microbatches), tuple(self.microbatches), self.multiple, self.plan)


@dataclass(frozen=True)
class PluginWord:
    """All ranks of a node that use the plugin; sent when something of it changes, and now and then."""

    ranks: list[RoleRow]


@dataclass(frozen=True)
class PlanOrder:
    """The split that all ranks are to follow from the next iteration that they agree on."""

    number: int
    microbatches: Split
