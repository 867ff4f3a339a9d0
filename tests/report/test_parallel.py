"""Work on a long list by several processes: the same results in the same order, also where one of them dies."""

import os
import signal

import pytest

from greyhound.report import parallel
from greyhound.report.parallel import CHUNK, in_order
from tests.report.test_trouble import record, row, site  # noqa: F401 - `site` is a fixture

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


@pytest.mark.parametrize("options", [("--format=table",), ("--format=json",), ("--format=csv",), ("--by=user",)])
def test_a_report_is_the_same_whoever_made_it(site, monkeypatch, options):  # noqa: F811
    site.sacct(*(row(str(job)) for job in range(1, 9)), row("9")[:20])
    for job in range(1, 9, 2):
        record(site.root, job)
    (site.root / "records" / "3" / "0.0" / "events.jsonl").write_text("{torn")
    alone = site.report("--since=2026-01-01", *options)
    monkeypatch.setattr(parallel, "CHUNK", 1)
    monkeypatch.setattr(parallel, "cores", lambda: 3)
    together = site.report("--since=2026-01-01", *options)
    assert (together.exit_code, together.stdout, together.stderr) == (0, alone.stdout, alone.stderr)
    assert "1 damaged lines" in together.stderr and "columns, not 17" in together.stderr
