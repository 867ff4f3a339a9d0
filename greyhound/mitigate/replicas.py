"""How fast each data-parallel replica is, measured in the running job, and what an uneven split would gain. Pure."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median, median_low

from greyhound.localize.model import RankProfile
from greyhound.mitigate.microbatches import PlanError, Request, Split, makespan, split
from greyhound.mitigate.roles import Role

LEAST_GAIN = 1.02  # a smaller one isn't worth a switch


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
