"""Who waits least: in a collective the slow member comes last, and the others' time in the call is waiting for it."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from greyhound.localize.groups import Group
from greyhound.localize.table import SYMMETRIC, Calls, instances_of


@dataclass(frozen=True)
class Wait:
    """Seconds that a rank waited in a communicator's collectives, and what its other members waited (median)."""

    comm: int
    mine_s: float
    others_s: float


def waits_of(calls: Calls, groups: dict[int, Group]) -> dict[int, list[Wait]]:
    """Waits by rank, from collectives that at least two members timed; durations only, so no clock matters."""
    mine = calls.where(np.isin(calls.op, SYMMETRIC))
    found = instances_of(mine)
    if len(found.first) == 0:
        return {}
    ordered = mine.where(found.order)
    shortest = np.minimum.reduceat(ordered.duration, found.first)
    shared = np.repeat(found.members > 1, found.members)
    wait = np.where(shared, ordered.duration - np.repeat(shortest, found.members), 0.0)
    keys = np.stack([ordered.comm.view(np.int64), ordered.rank], axis=1)[shared]
    if len(keys) == 0:
        return {}
    unique, which = np.unique(keys, axis=0, return_inverse=True)
    total = np.bincount(which.reshape(-1), weights=wait[shared])
    by_comm: dict[int, dict[int, float]] = defaultdict(dict)
    for (comm, rank), seconds in zip(unique.tolist(), total.tolist(), strict=True):
        by_comm[comm & 0xFFFFFFFFFFFFFFFF][rank] = seconds
    return _by_rank({comm: waits for comm, waits in by_comm.items() if comm in groups})


def _by_rank(by_comm: dict[int, dict[int, float]]) -> dict[int, list[Wait]]:
    found: dict[int, list[Wait]] = defaultdict(list)
    for comm, waits in by_comm.items():
        for rank, seconds in waits.items():
            others = [value for other, value in waits.items() if other != rank]
            if others:
                found[rank].append(Wait(comm, seconds, float(np.median(others))))
    return found


def agrees(waits: Sequence[Wait]) -> bool | None:
    """Whether a rank that is thought slow waits less than those which should be waiting for it; None: not known."""
    mine, others = sum(w.mine_s for w in waits), sum(w.others_s for w in waits)
    if not waits or (mine == 0 and others == 0):
        return None
    return mine <= others
