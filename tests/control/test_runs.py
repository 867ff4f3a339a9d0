"""Runs against earlier runs of the same work."""

import os
from dataclasses import replace

import pytest

from greyhound.control.runs import READ_BYTES, RunBook, RunRecord, compare


def run(job, healthy_s, nodes=("n1", "n2"), fingerprint="abc", ranks=8):
    return RunRecord(str(job), "0", 0, fingerprint, healthy_s, ranks, tuple(nodes), "2026-01-01T00:00:00Z")


def test_a_slower_run_names_the_new_node():
    found = compare(run(9, 1.08, ("n1", "n7")), [run(1, 1.0), run(2, 1.01), run(3, 1.3)])
    assert found.is_slower
    assert found.slowdown == pytest.approx(1.08 / 1.005)
    assert (found.runs, found.last_job, found.new_nodes) == (3, "3", ("n7",))


def test_an_equal_or_faster_run_says_nothing():
    assert not compare(run(9, 1.04), [run(1, 1.0)]).is_slower
    assert not compare(run(9, 0.7), [run(1, 1.0)]).is_slower


def test_other_work_other_size_and_the_run_itself_are_no_measure():
    assert compare(run(9, 2.0), [run(1, 1.0, fingerprint="other"), run(2, 1.0, ranks=4), run(9, 1.0)]) is None


def test_the_last_line_of_a_run_counts():
    assert compare(run(9, 1.0), [run(1, 5.0), run(1, 1.0)]).slowdown == pytest.approx(1.0)


def test_the_book_keeps_what_is_added(tmp_path):
    book = RunBook(tmp_path)
    assert book.read() == []
    rows = [run(job, 1.0 + job) for job in range(3)]
    for row in rows:
        book.add(row)
    assert book.read() == rows


def test_damaged_lines_cost_nothing_but_themselves(tmp_path):
    book = RunBook(tmp_path)
    book.add(run(1, 1.0))
    path = tmp_path / f"runs-{os.getuid()}" / "runs.jsonl"
    with path.open("a") as file:
        file.write('{"job": 1}\nnot json\n[]\n{"job":"2","healthy_s":NaN\n\n' + "[" * 100_000 + "\n")
        line = path.read_text().splitlines()[0]
        for damaged in (line.replace("1.0", "-1.0"), line.replace("1.0", "1" + 400 * "0")):
            file.write(damaged + "\n")
        file.write(line.replace('"restart": 0', '"restart": []') + "\n")
    book.add(run(3, 1.0))
    assert [row.job for row in book.read()] == ["1", "3"]


def test_a_large_book_loses_its_oldest_lines(tmp_path):
    book = RunBook(tmp_path)
    book.add(run(1, 1.0))
    path = tmp_path / f"runs-{os.getuid()}" / "runs.jsonl"
    line = path.read_text()
    path.write_text(line * (2 * READ_BYTES // len(line) + 1))
    book.add(run(2, 1.0))
    assert path.stat().st_size < 1.1 * READ_BYTES
    assert book.read()[-1].job == "2"


def test_a_foreign_folder_is_not_written_to(tmp_path):
    folder = tmp_path / f"runs-{os.getuid()}"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    with pytest.raises(PermissionError, match="written by others"):
        RunBook(tmp_path).add(run(1, 1.0))
    folder.rmdir()
    folder.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(OSError):
        RunBook(tmp_path).add(run(1, 1.0))
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_run_is_identified_by_job_step_and_restart():
    assert replace(run(1, 1.0), restart=1).run != run(1, 1.0).run
