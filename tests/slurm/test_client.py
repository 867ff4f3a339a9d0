import json
import resource

import pytest

from greyhound.slurm.client import CommandClient, SlurmError, parse_queue
from greyhound.slurm.jobid import JobIdError


def program(folder, name, text):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_node_address_is_not_taken_from_the_reason(tmp_path):
    program(
        tmp_path, "scontrol", 'echo "NodeName=n1 Arch=x NodeAddr=10.0.0.7 NodeHostName=h Reason=see NodeAddr=6.6.6.6"'
    )
    assert CommandClient(tmp_path).node_address("n1") == "10.0.0.7"


@pytest.mark.parametrize("node", ["", "n1,n2", "n1 n2", "-v", "n[1-2]"])
def test_one_node_name_only(tmp_path, node):
    program(tmp_path, "scontrol", "exit 0")
    with pytest.raises(SlurmError, match="node name"):
        CommandClient(tmp_path).node_address(node)


def test_job_state(tmp_path):
    program(tmp_path, "squeue", 'echo "RUNNING"')
    assert CommandClient(tmp_path).job_state("12") == "RUNNING"
    program(tmp_path, "squeue", 'echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1')
    assert CommandClient(tmp_path).job_state("12") == "UNKNOWN"
    program(tmp_path, "squeue", 'echo "Unable to contact slurm controller" >&2; exit 1')
    with pytest.raises(SlurmError, match="Unable to contact"):
        CommandClient(tmp_path).job_state("12")


def test_an_empty_job_id_never_reaches_scontrol(tmp_path):
    program(tmp_path, "scontrol", f"touch {tmp_path}/called")
    with pytest.raises(JobIdError):
        CommandClient(tmp_path).notify("", "text")
    assert not (tmp_path / "called").exists()


def test_notify_sends_one_clean_line(tmp_path):
    program(tmp_path, "scontrol", f'printf "%s|" "$@" > {tmp_path}/seen')
    CommandClient(tmp_path).notify("12.0", "slow\nn1:0 \x1b[31m")
    assert (tmp_path / "seen").read_text() == "notify|12|slow n1:0  [31m|"


@pytest.mark.parametrize("text", ["", "mine; a|b", "two\nlines; x ", "greyhound: no fail-slow"])
def test_a_comment_is_read_as_it_is(tmp_path, text):
    (tmp_path / "text").write_text(f"{text}\n")
    program(tmp_path, "squeue", f"cat {tmp_path}/text")
    assert CommandClient(tmp_path).comment("12") == text
    program(tmp_path, "squeue", "echo '(null)'")
    assert CommandClient(tmp_path).comment("12") == ""


def test_a_comment_is_written_as_one_word(tmp_path):
    program(tmp_path, "scontrol", f'printf "%s|" "$@" > {tmp_path}/seen')
    CommandClient(tmp_path).set_comment("12", "mine; it's\n$HOME")
    assert (tmp_path / "seen").read_text() == "update|JobId=12|Comment=mine; it's\n$HOME|"
    with pytest.raises(JobIdError):
        CommandClient(tmp_path).set_comment("", "text")


def test_what_must_be_done_first_in_a_command_is_done(tmp_path):
    program(tmp_path, "squeue", "ulimit -n")
    limit = (64, 64)
    client = CommandClient(tmp_path, preexec=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limit))
    assert client.comment("12") == "64"


def test_a_hanging_command_is_bounded(tmp_path):
    program(tmp_path, "scontrol", "exec sleep 60")
    with pytest.raises(SlurmError, match="did not answer within"):
        CommandClient(tmp_path, timeout_s=0.2).node_address("n1")


def test_a_missing_command_is_named(tmp_path):
    with pytest.raises(SlurmError, match="no squeue in"):
        CommandClient(tmp_path).queue()


def test_queue_rows_with_hostile_names():
    (job,) = parse_queue("12_3\x1fRUNNING\x1fann\x1fn[1-2]\x1fa|b\x1f<script>\n")
    assert (job.job.job, job.job.array_task, job.name) == (12, 3, "a|b\x1f<script>")
    with pytest.raises(SlurmError, match="2 columns"):
        parse_queue("12\x1fRUNNING\n")


OLD = {"job_id": 7, "job_state": "RUNNING", "user_name": "ann", "nodes": "n[1-2]", "name": "a|b\n<script>"}
OLD |= {"array_job_id": 0, "array_task_id": None, "array_task_string": "", "het_job_id": 0, "het_job_offset": 0}


def unset(value=0):
    return {"set": False, "infinite": False, "number": value}


def given(value):
    return {"set": True, "infinite": False, "number": value}


NEW = {**OLD, "job_state": ["RUNNING", "COMPLETING"], "array_job_id": given(0), "array_task_id": unset()}
NEW |= {"het_job_id": given(0), "het_job_offset": given(0)}


@pytest.mark.parametrize(
    ("row", "job", "state"),
    [
        (OLD, "7", "RUNNING"),
        ({**OLD, "array_job_id": 5, "array_task_id": 0}, "5_0", "RUNNING"),
        ({**OLD, "array_job_id": 5, "array_task_string": "2-9%3", "job_state": "PENDING"}, "5_[2-9%3]", "PENDING"),
        ({**OLD, "het_job_id": 6, "het_job_offset": 1}, "6+1", "RUNNING"),
        (NEW, "7", "RUNNING"),
        ({**NEW, "array_job_id": given(5), "array_task_id": given(0)}, "5_0", "RUNNING"),
        ({**NEW, "het_job_id": given(6), "het_job_offset": given(0)}, "6+0", "RUNNING"),
    ],
)
def test_the_queue_in_json_of_old_and_new_releases(tmp_path, row, job, state):
    answer = {"jobs": [row, {**row, "job_state": "COMPLETED"}, {**row, "job_state": ["CANCELLED"]}]}
    (tmp_path / "answer").write_text(json.dumps(answer))
    program(tmp_path, "squeue", f"cat {tmp_path}/answer")
    (found,) = CommandClient(tmp_path).queue()
    assert (str(found.job), found.state, found.user, found.node_list) == (job, state, "ann", "n[1-2]")
    assert found.name == OLD["name"]


@pytest.mark.parametrize("answer", ["exit 1", 'echo "[1"', "echo '{\"jobs\": 5}'", "echo '{\"jobs\": [{}]}'"])
def test_without_json_the_queue_comes_in_columns(tmp_path, answer):
    row = 'printf "12\\037RUNNING\\037ann\\037n1\\037x\\n"'
    program(tmp_path, "squeue", f'case "$1" in --json) {answer} ;; *) {row} ;; esac')
    (job,) = CommandClient(tmp_path).queue()
    assert (str(job.job), job.name) == ("12", "x")
