"""sacct's rows: hostile names, requeues, arrays, and rows that must be refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greyhound.slurm.accounting import arguments, gpus, new_delimiter, runs

D = "\x1fabc\x1f"
PLAIN = {
    "JobIDRaw": "7",
    "JobID": "7",
    "User": "ada",
    "Account": "phys",
    "Partition": "gpu",
    "State": "COMPLETED",
    "ExitCode": "0:0",
    "Submit": "100",
    "Start": "110",
    "End": "120",
    "ElapsedRaw": "10",
    "NNodes": "2",
    "NodeList": "n[1-2]",
    "AllocTRES": "billing=2,cpu=2,gres/gpu=4,node=2",
    "AdminComment": "",
    "Comment": "",
    "JobName": "train",
}


def row(**changes):
    return D.join({**PLAIN, **changes}.values())


def read(*lines):
    """The runs, none of them passed over."""
    found, told = read_all(*lines)
    assert not told
    return found


def read_all(*lines):
    told = []
    return list(runs([line + "\n" for text in lines for line in text.split("\n")], D, told.append)), told


def test_values_are_typed():
    (run,) = read(row())
    assert (run.job.job, run.start_s, run.elapsed_s, run.nodes, run.gpus) == (7, 110.0, 10.0, ("n1", "n2"), 4)


def test_a_pending_job_has_no_times_and_no_nodes():
    (run,) = read(row(State="PENDING", Start="Unknown", End="Unknown", NodeList="None assigned", AllocTRES=""))
    assert (run.start_s, run.ended, run.nodes, run.gpus) == (None, False, (), 0)


def test_requeued_runs_are_rows_of_their_own():
    assert [run.state for run in read(row(State="REQUEUED"), row(State="CANCELLED by 1000"))] == [
        "REQUEUED",
        "CANCELLED",
    ]


TEXTS = st.text(st.characters(exclude_characters="\x1f", exclude_categories=["Cs"]), max_size=30)


@given(TEXTS, TEXTS, TEXTS)
def test_any_name_and_comment_come_through(name, comment, admin_comment):
    changed = {"JobName": name, "Comment": comment, "AdminComment": admin_comment}
    first, second = read(row(**changed), row(JobIDRaw="8", JobID="8"))
    assert (first.name, first.comment, first.admin_comment) == (name, comment, admin_comment)
    assert second.job.job == 8


def test_a_row_of_another_width_is_passed_over_and_told():
    found, (told,) = read_all(row(Comment=f"a{D}b"), row(JobIDRaw="8", JobID="8"))
    assert [run.raw_id for run in found] == ["8"] and "18 columns" in told
    found, (told,) = read_all(row(), f"a{D}b")
    assert [run.raw_id for run in found] == ["7"] and "2 columns" in told


@pytest.mark.parametrize(("column", "text"), [("JobID", "seven"), ("ElapsedRaw", "x"), ("ElapsedRaw", "nan")])
def test_what_cannot_be_read_is_named(column, text):
    found, (told,) = read_all(row(**{column: text}), row())
    assert len(found) == 1 and text in told


def test_a_node_list_that_cannot_be_read_costs_only_itself():
    (run,) = read(row(NodeList="n[1-"))
    assert (run.nodes, run.node_list) == ((), "n[1-")


def test_a_time_that_is_none_is_unknown():
    (run,) = read(row(End="9" * 5000, AllocTRES=f"gres/gpu={'9' * 5000}"))
    assert run.end_s is None


@pytest.mark.parametrize(
    ("tres", "count"),
    [
        ("cpu=2", 0),
        ("cpu=2,gres/gpu=4,gres/gpu:h100=4", 4),
        ("gres/gpu:h100=2,gres/gpu:a100=1", 3),
        ("gres/gpumem=80G,gres/gpu=1", 1),
        ("", 0),
    ],
)
def test_gpus_are_counted_once(tres, count):
    assert gpus(tres) == count


def test_each_call_has_its_own_delimiter():
    assert new_delimiter() != new_delimiter()
    assert f"--delimiter={D}" in arguments(D)
