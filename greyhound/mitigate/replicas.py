"""How fast each data-parallel replica is, measured in the running job, and what an uneven split would gain. Pure."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median, median_low

from greyhound.localize.model import RankProfile
from greyhound.mitigate.microbatches import PlanError, Request, Split, makespan, split

LEAST_GAIN = 1.02  # a smaller one isn't worth a switch


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


def times_s(profiles: Sequence[RankProfile], roles: Mapping[str, Role]) -> list[float] | None:
    """Seconds a micro-batch takes each replica: of its slowest rank, whose own time the others wait for.

    None where a replica has no rank with a usable time.
    """
    slowest: dict[int, float] = defaultdict(float)
    replicas = 0
    for profile in profiles:
        role = roles.get(profile.key)
        known = [own_s for own_s in profile.own_s if math.isfinite(own_s) and own_s > 0]
        if role is None or not known:
            continue
        replicas = role.replicas
        slowest[role.replica] = max(slowest[role.replica], median(known) / role.microbatches[role.replica])
    if replicas == 0 or len(slowest) != replicas:
        return None
    return [slowest[replica] for replica in range(replicas)]


def are_alike(times: Sequence[float], tolerance: float) -> bool:
    """Whether no replica is slower than the (low) median of all by more than `tolerance` (0.05: 5 %)."""
    return max(times) <= (1 + tolerance) * median_low(times)


def best_split(times: Sequence[float], role: Role) -> Split | None:
    """The exact best split for these times; None if it isn't worth the switch or none fits."""
    try:
        best = split(Request(tuple(times), role.total, role.multiple))
    except PlanError:
        return None
    return best if makespan(times, role.microbatches) >= LEAST_GAIN * best.makespan else None


def gain_of(best: Split, times: Sequence[float], role: Role) -> float:
    """The share of the loss that the split removes: 0.0 nothing, 1.0 as fast as with the median replica everywhere."""
    now = makespan(times, role.microbatches)
    healthy = role.total / role.replicas * median_low(times)
    return min((now - best.makespan) / (now - healthy), 1.0) if now > healthy else 0.0
