"""`greyhound profile`: what it asks, waits for and says."""

import json
import time

import pytest

from greyhound.cli import profile as command
from tests.cli.test_job_commands import put, records, run, status  # noqa: F401 - `records` is a fixture
from tests.cli.test_owner_commands import NAME, FakeMaster, record  # noqa: F401 - a fixture

SUSPECT = {
    "kind": "gpu",
    "nodes": ["n3"],
    "ranks": [5],
    "rank_count": 1,
    "bus": "0000:0b:00.0",
    "peer": None,
    "ratio": 1.9,
    "share": 0.97,
    "confidence": 0.9,
    "reasons": ["own time 1.90 x that of ranks with the same work"],
    "identity": {
        "node": "n3",
        "bus": "0000:0b:00.0",
        "gpu": "H200",
        "uuid": "GPU-1",
        "serial": "42",
        "nic": "mlx5_0/1",
    },
}


def verdict(request, *suspects, abstained=None, notes=()):
    data = {"run": request.id, "reason": "owner", "suspects": list(suspects), "explained": 0.97}
    return {**data, "abstained": abstained, "notes": list(notes)}


def answers(*suspects, **given):
    def answer(master, request):
        master.emit("setting", request=request.id, applied=True, text="profiling the ranks for 5 s", mode="on")
        other = verdict(request, abstained="of another run")
        master.emit("verdict", **{**other, "run": "another"})
        master.emit("verdict", **verdict(request, *suspects, **given))

    return answer


def test_the_verdict_is_printed_with_its_reasons_and_the_ticket_s_words(record):  # noqa: F811
    with FakeMaster(record, answers(SUSPECT, notes=["nvml: n/a"])) as master:
        answer = run("profile", "77")
    assert answer.exit_code == 0, answer.output
    lines = answer.output.splitlines()
    assert "greyhound: job 77: profiling the ranks for 5 s" in lines
    assert "slow without a change: n3 GPU 0000:0b:00.0 (rank 5): 1.90x, explains 97 %" in lines
    assert "  own time 1.90 x that of ranks with the same work" in lines
    assert "  n3: GPU 0000:0b:00.0 (H200), serial 42, GPU-1, NIC mlx5_0/1, leaf switch n/a" in lines
    assert "  note: nvml: n/a" in lines
    assert [(request.kind, dict(request.fields)) for request in master.requests] == [("profile", {})]


def test_nobody_is_an_answer_too(record):  # noqa: F811
    with FakeMaster(record, answers(abstained="n4 is unmonitored")):
        answer = run("profile", "77")
    assert answer.exit_code == 0
    assert "nothing is slow that can be named: n4 is unmonitored" in answer.output


def test_for_programs_the_event_is_printed(record):  # noqa: F811
    with FakeMaster(record, answers(SUSPECT)):
        answer = run("profile", "77", "--json")
    event = json.loads(answer.output.splitlines()[-1])
    assert event["kind"] == "verdict" and event["data"]["suspects"] == [SUSPECT]


def test_a_refusal_says_why(record):  # noqa: F811
    def refuse(master, request):
        master.emit("setting", request=request.id, applied=False, text="not now: the job is muted", mode="off")

    with FakeMaster(record, refuse):
        answer = run("profile", "77")
    assert answer.exit_code == 3 and "refused: not now: the job is muted" in answer.output


def test_a_finished_job_gets_a_clear_answer(records, record):  # noqa: F811
    put(records, NAME, status(NAME, "ended"))
    answer = run("profile", "77")
    assert answer.exit_code == 2 and "isn't watched any more (ended)" in answer.output
    assert run("profile", "78").exit_code == 2


@pytest.mark.parametrize("ends", [True, False])
def test_a_job_that_ends_or_a_master_that_dies_within(record, monkeypatch, ends):  # noqa: F811
    monkeypatch.setattr(command, "VERDICT_S", 0.5)

    def answer(master, request):
        master.emit("setting", request=request.id, applied=True, text="profiling", mode="on")
        if ends:
            time.sleep(0.1)
            master.emit("end")

    with FakeMaster(record, answer):
        result = run("profile", "77")
    assert result.exit_code == 4
    assert ("the job ended" if ends else "nothing was heard") in result.output
