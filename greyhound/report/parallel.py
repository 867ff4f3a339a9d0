"""Work on a long list by several processes, in order; where one dies the rest is done here."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

CHUNK = 500
MOST_PROCESSES = 4
"""A login node is others' too."""
_WORK: list[tuple[Sequence[Any], Callable[[Sequence[Any]], Any]]] = []


def cores() -> int:
    """How many processes are of use here."""
    return min(MOST_PROCESSES, len(os.sched_getaffinity(0)))


def in_order(
    items: Sequence[Item], work: Callable[[Sequence[Item]], Result], processes: int | None = None
) -> Iterator[Result]:
    """``work`` of each CHUNK of the items. The processes are forked, so that the items needn't be sent to them; the
    results are. Few items, or a single core, and it is all done here."""
    chunks = [items[first : first + CHUNK] for first in range(0, len(items), CHUNK)]
    processes = cores() if processes is None else processes
    done = 0
    if processes > 1 and len(chunks) > processes:
        try:
            for result in _forked(chunks, work, processes):
                done += 1
                yield result
        except (BrokenProcessPool, OSError):  # one was killed, for memory say; or there is no process to be had
            pass
    for chunk in chunks[done:]:
        yield work(chunk)


def _forked(
    chunks: Sequence[Sequence[Item]], work: Callable[[Sequence[Item]], Result], processes: int
) -> Iterator[Result]:
    _WORK.append((chunks, work))
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("fork"), _leave_interrupts)
    try:
        yield from pool.map(_one, range(len(chunks)))
    finally:
        pool.shutdown(cancel_futures=True)
        _WORK.pop()


def _leave_interrupts() -> None:
    """To whoever reads the results."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _one(number: int) -> Any:
    chunks, work = _WORK[-1]
    return work(chunks[number])
