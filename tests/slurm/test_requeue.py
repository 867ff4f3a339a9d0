"""S4's requeue: what is planned and refused, and the real thing on the sandbox."""

import json
import signal
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from greyhound.cli.requeue import command
from greyhound.sandbox.cluster import Sandbox
from greyhound.slurm import nodelist, requeue
from greyhound.slurm.client import SlurmError
from greyhound.slurm.requeue import JobFacts, Limits, Request

NOW = 1_800_000_000.0
FACTS = JobFacts(excluded="", nodes=2, partition="main", restarts=0, batch=True, state="RUNNING", requeueable=True)
NODES = {f"n{number}" for number in range(1, 21)}
REQUEST = Request("7", {"n2": NOW}, "n2 GPU 0: 1.9x for 40 min")
SHOWN = (
    "JobId=7 JobName=ExcNodeList=n9 Restarts=5 UserId=root(0) JobState=RUNNING Reason=None Dependency=(null) Requeue=1 "
    "Restarts=2 BatchFlag=1 Reboot=0 ExitCode=0:0 RunTime=00:00:05 Partition=main AllocNode:Sid=h:1 "
    "ReqNodeList=(null) ExcNodeList=n[3-4] NodeList=n1,n2 NumNodes=2-4 NumCPUs=2 Command=/x "
    "Comment=NumNodes=1 NumCPUs=9"
)


def changed(**fields):
    return JobFacts(**{**vars(FACTS), **fields})


def test_what_slurm_says_of_a_job_whose_name_says_other_things():
    assert requeue.parse_job(SHOWN) == JobFacts("n[3-4]", 2, "main", 2, True, "RUNNING", True)
    with pytest.raises(requeue.RequeueError, match="ExcNodeList"):
        requeue.parse_job("JobId=7")


def test_nodes_that_can_run_a_job():
    assert requeue.usable_nodes("n1 idle\nn2 mix\nn3 down*\nn4 drain\nn5 alloc\nn6 idle*\nn7 drng\n") == {
        "n1",
        "n2",
        "n5",
    }


@given(
    st.sets(st.sampled_from(sorted(NODES)), max_size=3),
    st.dictionaries(st.sampled_from(sorted(NODES)), st.floats(0, 2 * requeue.EXPIRES_S), max_size=2),
)
def test_the_list_holds_the_user_s_own_ours_of_a_day_and_the_new_ones(users_own, ages):
    earlier = {node: NOW - age for node, age in ages.items()}
    facts = changed(excluded=nodelist.compress(sorted(users_own | set(earlier))))
    chosen = requeue.plan(REQUEST, facts, NODES, earlier, NOW, Limits(share=0.5))
    fresh = {node for node, age in ages.items() if age < requeue.EXPIRES_S}
    assert set(nodelist.expand(chosen.node_list)) == (users_own - set(earlier)) | fresh | {"n2"}
    assert set(chosen.excluded) == fresh | {"n2"}


@pytest.mark.parametrize(
    ("facts", "usable", "limits", "text"),
    [
        (changed(batch=False), NODES, Limits(), "only batch jobs"),
        (changed(requeueable=False), NODES, Limits(), "--no-requeue"),
        (changed(restarts=3), NODES, Limits(), "restarted 3 times already; the limit is 3"),
        (changed(required="n[1-2]"), NODES, Limits(), "asks for n2 itself"),
        (changed(nodes=20), NODES, Limits(), "needs 20 nodes and 19 of partition main would be left"),
        (changed(nodes=2, excluded="n1"), {"n1", "n2", "n3"}, Limits(), "no replacement can start"),
    ],
)
def test_a_requeue_that_would_harm_is_refused(facts, usable, limits, text):
    with pytest.raises(requeue.RequeueError, match=text):
        requeue.plan(REQUEST, facts, usable, {}, NOW, limits)


def test_no_more_than_its_share_of_a_partition_is_excluded():
    request = Request("7", {"n2": NOW, "n3": NOW, "n4": NOW}, "")
    with pytest.raises(requeue.RequeueError, match=r"3 of 20 usable nodes .* would be excluded; 2 at most"):
        requeue.plan(request, FACTS, NODES, {}, NOW, Limits())
    assert requeue.plan(request, FACTS, NODES, {}, NOW, Limits(share=0.2)).node_list == "n[2-4]"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1]",
        '{"v":2}',
        '{"v":1,"job":7,"nodes":{"n2":1}}',
        '{"v":1,"job":"","nodes":{"n2":1}}',
        '{"v":1,"job":"7; reboot","nodes":{"n2":1}}',
        '{"v":1,"job":"7","nodes":{}}',
        '{"v":1,"job":"7","nodes":["n2"]}',
        '{"v":1,"job":"7","nodes":{"n2":"yesterday"}}',
        '{"v":1,"job":"7","nodes":{"n2":NaN}}',
        '{"v":1,"job":"7","nodes":{"n2":1%s}}' % ("0" * 400),
        '{"v":1,"job":"7","nodes":{"n[1-9999999]":1}}',
        '{"v":1,"job":"7","nodes":{"--all":1}}',
    ],
)
def test_a_damaged_request_is_refused(text):
    with pytest.raises(requeue.RequeueError):
        requeue.parse(text)


def test_a_request_is_read_as_it_was_written():
    assert requeue.parse(REQUEST.to_text()) == REQUEST


class Slurm:
    """Refuses the list until the job has left its nodes."""

    def __init__(self, refusals, takes=True):
        self.said, self.refusals, self.takes, self.list = [], refusals, takes, "(null)"

    def ask(self, program, *arguments):
        self.said.append(arguments[0])
        if arguments[0] == "update":
            if self.refusals:
                self.refusals -= 1
                raise SlurmError("Job is no longer pending execution")
            if self.takes:
                self.list = arguments[2].partition("=")[2]
        return SHOWN.replace("ReqNodeList=(null) ExcNodeList=n[3-4]", f"ReqNodeList=(null) ExcNodeList={self.list}")


def test_the_list_is_set_when_slurm_takes_it():
    slurm, told, now = Slurm(refusals=3), [], iter(range(1000))
    assert requeue.carry_out(slurm, "7", requeue.Plan("n[2-3]"), told.append, lambda _: None, lambda: next(now))
    assert slurm.said == ["requeue", *["update"] * 4, "-o"] and told == []


@pytest.mark.parametrize("slurm", [Slurm(refusals=10_000), Slurm(refusals=0, takes=False)])
def test_a_list_that_is_never_taken_is_said_and_the_job_is_not_held(slurm):
    told, now = [], iter(range(1000))
    assert not requeue.carry_out(slurm, "7", requeue.Plan("n2"), told.append, lambda _: None, lambda: next(now))
    assert len(told) == 1 and "may get the same nodes again" in told[0]
    assert "release" not in slurm.said and "requeuehold" not in slurm.said


def test_a_list_that_cannot_be_read_is_said():
    told, now = [], iter(range(1000))
    slurm = Slurm(refusals=0, takes=False)
    slurm.list = "n[2-"
    assert not requeue.carry_out(slurm, "7", requeue.Plan("n2"), told.append, lambda _: None, lambda: next(now))
    assert len(told) == 1 and "may get the same nodes again" in told[0]


@pytest.mark.parametrize(
    ("request_bytes", "excluded", "text"), [(b"\xff{", "n9", "not a request"), (None, "n[3-", "n[3-")]
)
def test_what_cannot_be_read_lets_the_job_go_on(tmp_path, monkeypatch, request_bytes, excluded, text):
    path = tmp_path / "request.json"
    path.write_bytes(request_bytes or REQUEST.to_text().encode())
    facts = changed(excluded=excluded)
    monkeypatch.setattr(requeue, "gather", lambda client, job: (facts, NODES))
    old = signal.getsignal(signal.SIGTERM)
    try:
        result = CliRunner().invoke(command, ["--request", str(path)])
    finally:
        signal.signal(signal.SIGTERM, old)
    assert result.exit_code == 1 and "no requeue, the job goes on" in result.output and text in result.output
    assert path.exists()


def test_a_requeue_that_slurm_refuses_leaves_the_request_as_it_was(tmp_path, monkeypatch):
    path, kept = tmp_path / "request.json", tmp_path / "excluded.7.json"
    path.write_text(REQUEST.to_text())
    kept.write_text('{"n9": 1.0}')

    class Refusing(Slurm):
        def ask(self, program, *arguments):
            if arguments[0] == "requeue":
                raise SlurmError("Requested operation is presently disabled")
            return (
                "\n".join(f"{node} idle" for node in NODES) if program == "sinfo" else super().ask(program, *arguments)
            )

    monkeypatch.setattr("greyhound.cli.requeue.CommandClient", lambda: Refusing(0))
    monkeypatch.setattr("greyhound.cli.requeue.signal.signal", lambda *_: None)
    answer = CliRunner().invoke(command, ["--request", str(path)])
    assert answer.exit_code == 1 and "the job goes on: Requested operation" in answer.output
    assert requeue.parse(path.read_text()) == REQUEST and json.loads(kept.read_text()) == {"n9": 1.0}


JOB = """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --open-mode=append --requeue
trap '' TERM
echo "run ${{SLURM_RESTART_COUNT:-0}} on $(scontrol show hostnames "$SLURM_JOB_NODELIST" | tr '\\n' ' ')"
[ -n "$SLURM_RESTART_COUNT" ] && exit 0
printf '{{"v":1,"job":"%s","nodes":{{"n2":%s}},"reason":"n2 is slow"}}' "$SLURM_JOB_ID" "$(date +%s)" > {request}
{python} -I -m greyhound slurm requeue --request {request} --max-share 0.5
sleep 60
"""


@pytest.mark.cluster
def test_a_real_job_goes_on_without_the_slow_node(sandbox: Sandbox, tmp_path: Path) -> None:
    request, output, script = tmp_path / "request.json", tmp_path / "out", tmp_path / "job.sh"
    script.write_text(JOB.format(request=request, python=sys.executable))
    job = sandbox.submit(f"--output={output}", "--exclude=n4", str(script))
    deadline_s = time.monotonic() + 90
    while sandbox.job_state(job) in ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "REQUEUED"):
        assert time.monotonic() < deadline_s, output.read_text()
        time.sleep(0.5)
    text = output.read_text()
    assert "run 0 on n1 n2" in text and "run 1 on n1 n3" in text
    assert f"requeue of job {job} without n[2,4]" in text
    kept = json.loads((tmp_path / f"excluded.{job}.json").read_text())
    assert list(kept) == ["n2"] and not request.exists()
