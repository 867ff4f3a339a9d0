"""What our own processes may take: address space, and the cores of the ranks."""

import contextlib
import os
import resource
from collections.abc import Iterable
from pathlib import Path

MIB = 2**20
# Address space, not memory: numpy's and jemalloc's reservations count, and 0.3 to 5 MiB a ring. In use are about 80, 50
# and 10 MiB. Who reaches a limit ends, which leaves the job unmonitored.
ANALYZER_BYTES = 4096 * MIB
MASTER_BYTES = 2048 * MIB
REDIS_BYTES = 1024 * MIB


def cap_memory(most_bytes: int) -> None:
    """Limit this process's address space, and that of its children; a lower limit that it has already stays."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limits = [limit for limit in (soft, hard, most_bytes) if limit != resource.RLIM_INFINITY]
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (min(limits), min(limits)))


def spare_cores(ours: set[int], ranks: Iterable[set[int]]) -> set[int]:
    """Those of our cores that no rank may use; empty where the ranks may use all of them."""
    return ours.difference(*ranks)


class Cores:
    """Keeps this process and its children off the cores of its node's ranks, where there are others."""

    def __init__(self) -> None:
        """The cores that we have now are those that we may ever use."""
        self._ours = os.sched_getaffinity(0)
        self._moved: tuple[frozenset[int], frozenset[int]] | None = None

    def avoid(self, pids: Iterable[int]) -> None:
        """Move off the cores of these processes; nothing where they may use all of ours, or are gone."""
        ranks = []
        for pid in pids:
            with contextlib.suppress(OSError):
                ranks.append(os.sched_getaffinity(pid))
        spare = spare_cores(self._ours, ranks) if ranks else set()
        family = _family(os.getpid())
        if spare and self._moved != (frozenset(spare), frozenset(family)):
            self._moved = (frozenset(spare), frozenset(family))
            for pid in family:
                _move(pid, spare)


def _family(pid: int) -> list[int]:
    import psutil

    try:
        return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    except psutil.Error:
        return [pid]


def _move(pid: int, cores: set[int]) -> None:
    """All threads of a process; those that end meanwhile don't matter."""
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                os.sched_setaffinity(int(thread.name), cores)
