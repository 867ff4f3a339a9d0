"""Work on a long list by several processes: the same results in the same order, also where one of them dies."""

import os
import signal

import pytest

from greyhound.report.parallel import CHUNK, in_order

ITEMS = list(range(7 * CHUNK + 3))


@pytest.mark.parametrize("processes", [1, 3])
@pytest.mark.parametrize("items", [ITEMS, ITEMS[:5], []])
def test_the_order_is_kept_whoever_works(items, processes):
    pids = set()

    def work(chunk):
        return os.getpid(), list(chunk)

    found = []
    for pid, chunk in in_order(items, work, processes):
        pids.add(pid)
        found += chunk
    assert found == items
    assert (os.getpid() in pids) == (bool(items) and (processes == 1 or len(items) < CHUNK))


def test_what_a_killed_process_leaves_is_done_here():
    here = os.getpid()

    def work(chunk):
        if os.getpid() != here and chunk[0] == 3 * CHUNK:
            os.kill(os.getpid(), signal.SIGKILL)
        return list(chunk)

    assert [item for part in in_order(ITEMS, work, 2) for item in part] == ITEMS


def test_an_error_in_a_process_is_an_error_here():
    def work(chunk):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(in_order(ITEMS, work, 2))
