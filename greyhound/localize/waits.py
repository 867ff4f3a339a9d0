"""Who waits least: in a collective the slow member comes last, and the others' time in the call is waiting for it."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from greyhound.localize.groups import Group
from greyhound.localize.stats import others_low_median
from greyhound.localize.table import SYMMETRIC, Calls, calls_for_each, instances_of

_CONTRADICTS = 0.5  # of the growth
_LESS = 0.7  # of the others' wait


@dataclass(frozen=True)
class Wait:
    """Seconds an iteration that a rank waited in a communicator's collectives, and its other members (low
    median)."""

    comm: int
    mine_s: float
    others_s: float


def waits_of(calls: Calls, groups: dict[int, Group], iterations: Sequence[int]) -> dict[int, list[Wait]]:
    """Waits by rank, from collectives that at least two members timed; durations only, so no clock matters.

    `iterations`: how many each rank's profile holds.
    """
    mine = calls.where(np.isin(calls.op, SYMMETRIC))
    found = instances_of(mine)
    if len(found.first) == 0:
        return {}
    ordered = mine.where(found.order)
    shortest = np.minimum.reduceat(ordered.duration, found.first)
    shared = np.repeat(found.members > 1, found.members)
    wait = np.where(shared, ordered.duration - np.repeat(shortest, found.members), 0.0)
    wait *= calls_for_each(ordered) / np.maximum(np.asarray(iterations), 1)[ordered.rank]
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
        seconds = np.array(list(waits.values()))
        if len(seconds) > 1:
            others = others_low_median(seconds).tolist()
            for (rank, mine), rest in zip(waits.items(), others, strict=True):
                found[rank].append(Wait(comm, mine, rest))
    return found


def agrees(waits: Sequence[Wait], growth_s: float) -> bool | None:
    """Whether a rank that takes `growth_s` longer waits less than those which should wait for it; None: not known.

    A contradiction must be as large as the growth: of the calls in a profile just the one may be missing in which all
    the others wait.
    """
    mine, others = sum(wait.mine_s for wait in waits), sum(wait.others_s for wait in waits)
    if mine - others >= _CONTRADICTS * growth_s:
        return False
    return True if mine <= _LESS * others and others > 0 else None
