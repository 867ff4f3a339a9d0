"""Accounting joined with records: attempts, unmonitored runs, sums, groups, and the three forms."""

import csv
import io
import json
from dataclasses import replace

import pytest

from greyhound.control.names import StepName
from greyhound.control.summary import NOT_TRACKED
from greyhound.report import output, table
from greyhound.report.build import NO_RECORD, NOT_STARTED, PROBLEMS_KEPT, Totals, attempts, by_job
from greyhound.report.groups import UNATTRIBUTED, merged, sums
from greyhound.report.records import EpisodeRecord, StepRecord
from greyhound.slurm import jobid
from greyhound.slurm.accounting import JobRun

UID = 1000


def run(raw_id="7", start_s=100.0, elapsed_s=400.0, **changes):
    values = {
        "raw_id": raw_id,
        "job": jobid.parse(raw_id),
        "user": "ada",
        "account": "phys",
        "partition": "gpu",
        "state": "COMPLETED",
        "exit_code": "0:0",
        "submit_s": 90.0,
        "start_s": start_s,
        "end_s": None if start_s is None else start_s + elapsed_s,
        "elapsed_s": 0.0 if start_s is None else elapsed_s,
        "node_list": "n[1-2]",
        "gpus": 4,
        "name": "train",
        "comment": "",
        "admin_comment": "",
    }
    return JobRun(**{**values, **changes})


def episode(identity="e1", lost_s=100.0, slowdown=1.5, **changes):
    return EpisodeRecord(identity, 10, 150.0, 60, 200.0, 1.0, slowdown, slowdown, lost_s, "recovered", **changes)


def step(restart=0, episodes=(), tracked=4, owner=UID, **changes):
    name = StepName("7", "0", restart)
    return StepRecord(name, owner, "ended", tracked=tracked, iterations=100, episodes=tuple(episodes), **changes)


def group(rows, by):
    return merged([sums(rows, by)])


def join(runs, steps):
    return list(attempts(by_job(runs), lambda job, running: steps if job == "7" else [], lambda user: UID))


def test_the_loss_is_priced_in_gpu_hours_and_completion_time():
    (row,) = join([run()], [step(episodes=[episode()])])
    assert row.gpu_hours_lost == pytest.approx(100 * 4 / 3600)
    assert row.jct_slowdown == pytest.approx(400 / 300)


def test_requeued_runs_get_the_records_of_their_restart():
    rows = join([run(start_s=900.0), run(start_s=100.0, state="REQUEUED")], [step(1), step(0, [episode()])])
    assert [(row.restart, row.run.start_s, len(row.episodes)) for row in rows] == [(0, 100.0, 1), (1, 900.0, 0)]


def test_runs_before_the_time_asked_for_are_counted():
    records = [step(r, start_s=s) for r, s in ((0, 101.0), (1, 902.0), (2, 2001.0))]
    rows = join([run(start_s=900.0), run(start_s=2000.0)], records)
    assert [(row.restart, row.steps[0].name.restart) for row in rows] == [(1, 1), (2, 2)]
    (row,) = join([run(start_s=2000.0)], records)
    assert (row.restart, len(row.steps)) == (2, 1)
    rows = join([run(start_s=100.0), run(start_s=900.0)], records)
    assert [row.restart for row in rows] == [0, 1]


def test_a_clock_that_is_off_changes_no_run():
    records = [step(0, start_s=100.0 - 40), step(1, start_s=900.0 - 40)]
    rows = join([run(start_s=100.0), run(start_s=900.0)], records)
    assert [(row.restart, row.steps[0].name.restart) for row in rows] == [(0, 0), (1, 1)]


def test_a_killed_record_is_told_and_counted():
    (row,) = join([run(state="CANCELLED")], [step(episodes=[episode()])._replace(state="killed")])
    totals = Totals()
    totals.add(row)
    assert (row.record, totals.killed, totals.monitored) == ("killed", 1, 1)


def test_a_record_without_a_tracked_rank_says_so():
    (row,) = join([run()], [step(tracked=0)])
    assert row.why_not == NOT_TRACKED


def test_jobs_are_counted_once_whatever_their_first_run_is_called():
    records = [step(r, start_s=s) for r, s in ((0, 101.0), (1, 902.0))]
    totals = Totals()
    for row in join([run(start_s=900.0), run("8")], records):
        totals.add(row)
    assert (totals.jobs, totals.attempts) == (2, 2)


def test_problems_beyond_a_thousand_are_counted_only():
    totals = Totals()
    for number in range(PROBLEMS_KEPT + 5):
        totals.problem(f"{number}")
    assert (len(totals.problems), totals.problem_count) == (PROBLEMS_KEPT, PROBLEMS_KEPT + 5)


def test_unmonitored_runs_are_there_with_their_reason():
    rows = join([run(), run("8"), run("9", start_s=None)], [step(tracked=0, unmonitored="no redis-server")])
    assert [row.why_not for row in rows] == ["no redis-server", NO_RECORD, NOT_STARTED]
    totals = Totals()
    for row in rows:
        totals.add(row)
    assert (totals.jobs, totals.monitored, totals.unmonitored, totals.not_started) == (3, 0, 2, 1)


def test_a_foreign_record_is_no_record_and_said():
    (row,) = join([run()], [step(episodes=[episode()], owner=UID + 1)])
    assert not row.monitored
    assert "belong to another user" in row.problems[0]


def test_groups_sum_by_component_and_keep_what_is_not_attributed():
    found = [episode(node="n2", bus="0:1"), episode("e2", 50.0, 2.0, node="n2"), episode("e3", 1.0)]
    by_node = group(join([run()], [step(episodes=found)]), "node")
    assert [(row.key, row.fail_slows, row.lost_s, row.worst) for row in by_node] == [
        ("n2", 2, 150.0, 2.0),
        (UNATTRIBUTED, 1, 1.0, 1.5),
    ]
    assert by_node[0].gpu_hours_lost == pytest.approx(150 * 4 / 3600)
    assert [row.key for row in group(join([run()], [step(episodes=found)]), "gpu")] == ["n2 0:1", UNATTRIBUTED]


HOSTILE = ["a|b\n<script>alert(1)</script>", "\u202egnp.exe", "=cmd()", "[red]x[/red]", "\x1b[2Jx", "ü" * 200]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_survive_in_all_forms(name):
    rows = join([run(name=name)], [step(episodes=[episode()])])
    text = io.StringIO()
    output.write_json(text, [output.json_rows(map(output.attempt_row, rows))], Totals())
    assert json.loads(text.getvalue())["rows"][0]["name"] == name

    columns = output.columns("job")
    text = output.csv_header(columns) + output.csv_rows(map(output.attempt_row, rows), columns)
    header, values = list(csv.reader(io.StringIO(text)))
    cell = values[header.index("name")]
    assert cell.endswith(name) and not cell.startswith("=")

    shown = "\n".join(table.runs_table(rows))
    assert "\x1b" not in shown and "\u202e" not in shown
    assert ("[red]" in shown) == ("[red]" in name)


def test_group_rows_have_the_columns_that_csv_promises():
    (row,) = group(join([run()], [step(episodes=[episode(node="n1")])]), "node")
    assert set(output.columns("node")) <= set(output.group_row(row))
    assert set(output.columns("job")) <= set(output.attempt_row(join([run()], [])[0]))


def test_parts_add_up_to_the_whole():
    found = [episode(node="n1"), episode("e2", 50.0, 2.0, node="n2")]
    rows = [replace(row, problems=("odd",)) for row in join([run(), run("8"), run("9")], [step(episodes=found)])]
    whole, added = Totals(), Totals()
    assert list(whole.counting(rows)) == rows
    for row in rows:
        part = Totals()
        part.add(row)
        added.merge(part)
    assert replace(added, _last_job="") == replace(whole, _last_job="") and whole.jobs == 3
    assert merged([sums(rows, "node")]) == merged([sums([row], "node") for row in rows])
