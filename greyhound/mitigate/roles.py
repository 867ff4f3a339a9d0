"""Which replica a rank belongs to, and what all ranks agree on. Pure, and without numpy: messages are made of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Role:
    """What a rank's plugin tells: its replica (data-parallel rank) of how many, and the split that is in force.

    `plan` is the number of the plan that it follows, 0 for the even split; `multiple` what each count must divide by.
    """

    replica: int
    replicas: int
    microbatches: tuple[int, ...]
    multiple: int = 1
    plan: int = 0

    @property
    def total(self) -> int:
        """Micro-batches of an iteration over all replicas."""
        return sum(self.microbatches)


class RolesError(ValueError):
    """The ranks' roles don't fit together; the text says how."""


def agreed(roles: Mapping[str, Role], ranks: Sequence[str]) -> Role:
    """A role that stands for all (its `replica` says nothing). Raises RolesError if a rank has none or they differ."""
    missing = [rank for rank in ranks if rank not in roles]
    if missing or not ranks:
        count = len(missing)
        raise RolesError(f"{count} of {len(ranks)} ranks don't use greyhound.megatron" if ranks else "no rank is known")
    first = roles[ranks[0]]
    shapes = {(r.replicas, r.microbatches, r.multiple, r.plan) for r in (roles[rank] for rank in ranks)}
    if len(shapes) > 1:
        raise RolesError("the ranks are at different plans just now")
    if {roles[rank].replica for rank in ranks} != set(range(first.replicas)):
        raise RolesError(f"the ranks don't cover {first.replicas} replicas")
    return first
