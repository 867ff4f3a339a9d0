"""What the hook costs: windows of the same work with recording off and on, in pairs of random order."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from greyhound.selftest.own_ring import OwnRing
from greyhound.selftest.world import World

PAIRS = 30


@dataclass(frozen=True)
class Pair:
    """Seconds a unit of work, recording off and on."""

    off_s: float
    on_s: float


def pairs(world: World, ring: OwnRing, work: Callable[[], object], repeats: int, count: int = PAIRS) -> list[Pair]:
    """``count`` pairs; each window does ``work`` ``repeats`` times. All ranks switch at the same windows."""
    import torch.distributed as dist

    # The same order on every rank; random, so that nothing periodic falls on one side.
    order = random.Random(7)
    found = []
    for _ in range(count):
        took = {}
        for muted in order.sample((True, False), 2):
            ring.mute(muted)
            dist.barrier()
            world.synchronize()
            begin = time.perf_counter()
            for _ in range(repeats):
                work()
            world.synchronize()
            took[muted] = (time.perf_counter() - begin) / repeats
        found.append(Pair(off_s=took[True], on_s=took[False]))
    ring.mute(False)
    ring.read_all()  # those windows may have lapped the ring: nobody compares them
    return found
