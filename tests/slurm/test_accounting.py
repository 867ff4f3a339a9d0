"""sacct's rows: hostile names, requeues, arrays, and rows that must be refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greyhound.slurm.accounting import AccountingError, arguments, gpus, new_delimiter, runs

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
    return list(runs([line + "\n" for text in lines for line in text.split("\n")], D))


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


def test_a_row_of_another_width_is_refused():
    with pytest.raises(AccountingError, match="18 columns"):
        read(row(Comment=f"a{D}b"))
    with pytest.raises(AccountingError, match="2 columns"):
        read(f"a{D}b")


@pytest.mark.parametrize(("column", "text"), [("JobID", "seven"), ("ElapsedRaw", "x"), ("NodeList", "n[1-")])
def test_what_cannot_be_read_is_named(column, text):
    with pytest.raises(AccountingError):
        read(row(**{column: text}))


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
