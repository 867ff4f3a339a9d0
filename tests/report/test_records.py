"""Step records from event logs: ended, killed, damaged, of another release, and written by a real EventLog."""

import json

import pytest

from greyhound.control.events import EventLog
from greyhound.control.names import StepName
from greyhound.report.records import read_step, steps_of

NAME = StepName("77", "0", 0)
SLOW = {
    "onset": 40,
    "onset_time": "2026-01-01T00:00:40.000Z",
    "reported": 44,
    "ranks": 8,
    "healthy_s": 1.0,
    "slow_s": 1.5,
    "slowdown": 1.5,
    "end": None,
    "duration_s": None,
    "lost_s": 2.0,
    "cause": None,
}
OVER = {**SLOW, "end": 100, "duration_s": 90.0, "lost_s": 30.0, "cause": "recovered"}


def write(folder, end=True):
    folder.mkdir(parents=True, exist_ok=True)
    log = EventLog(folder / "events.jsonl", NAME)
    log.append("start", 1000.0, {"mode": "observe"})
    log.append("tracking", 1010.0, {"ranks": 8, "reason": None})
    log.append("suspect", 1044.0, SLOW, "e1", 44)
    log.append("recovered", 1100.0, OVER, "e1", 100)
    log.append("suspect", 1200.0, {**SLOW, "onset": 200}, "e2", 204)
    if end:
        rows = [{"id": "e1", "open": False, **OVER}, {"id": "e2", "open": False, **SLOW, "end": 300, "lost_s": 50.0}]
        data = {"iterations": 300, "healthy_s": 1.0, "ranks": 8, "tracked": 8, "unmonitored": None, "episodes": rows}
        log.append("end", 1300.0, data, iteration=300)
    return folder / "events.jsonl"


def test_an_ended_step_has_what_its_last_event_says(tmp_path):
    write(tmp_path)
    step = read_step(tmp_path, NAME)
    assert (step.state, step.mode, step.iterations, step.tracked, step.start_s) == ("ended", "observe", 300, 8, 1000.0)
    assert [episode.lost_s for episode in step.episodes] == [30.0, 50.0]
    assert step.lost_s == 80.0


def test_a_killed_step_keeps_what_was_known(tmp_path):
    write(tmp_path, end=False)
    step = read_step(tmp_path, NAME)
    assert (step.state, step.iterations, step.tracked) == ("killed", 204, 8)
    assert [(episode.id, episode.ended_by) for episode in step.episodes] == [("e1", "recovered"), ("e2", "")]
    assert read_step(tmp_path, NAME, running=True).state == "running"


def test_verdicts_and_actions_belong_to_their_episode(tmp_path):
    path = write(tmp_path)
    component = {"kind": "gpu", "node": "n3", "bus": "0000:01:00.0", "rank": 5, "peer": None}
    row = {
        "v": 1,
        "seq": 9,
        "time": "x",
        "kind": "verdict",
        "episode": "e1",
        "component": component,
        "data": {"cause": "hot"},
    }
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")
        file.write(json.dumps({**row, "kind": "action", "data": {"strategy": "S2"}}) + "\n")
    first, second = read_step(tmp_path, NAME).episodes
    assert (first.node, first.bus, first.cause, first.actions) == ("n3", "0000:01:00.0", "hot", ("S2",))
    assert second.node == ""


def test_damaged_and_newer_lines_are_counted_and_cost_only_themselves(tmp_path):
    path = write(tmp_path)
    with path.open("a") as file:
        file.write('{"v":1,"kind":"recov\n[1,2]\n{"v":2,"kind":"end","data":{"iterations":9}}\n')
    step = read_step(tmp_path, NAME)
    assert step.lost_s == 80.0
    assert any("2 damaged lines" in problem for problem in step.problems)
    assert any("1 events of another release" in problem for problem in step.problems)


@pytest.mark.parametrize(
    "data", [None, [], {"episodes": 5}, {"episodes": [None, {"id": 5}, {"id": "e1", "lost_s": "x"}]}]
)
def test_wrong_types_in_an_end_are_no_traceback(tmp_path, data):
    path = write(tmp_path, end=False)
    with path.open("a") as file:
        file.write(json.dumps({"v": 1, "kind": "end", "data": data}) + "\n")
    assert read_step(tmp_path, NAME).state == "ended"


def test_no_log_is_no_record_and_a_fifo_is_no_wait(tmp_path):
    import os

    assert read_step(tmp_path, NAME) is None
    os.mkfifo(tmp_path / "events.jsonl")
    assert read_step(tmp_path, NAME).state == "unreadable"


def test_all_steps_and_restarts_of_a_job_are_found(tmp_path):
    for folder in ("0.0", "0.1", "1.1", "other", "0.x"):
        write(tmp_path / "77" / folder)
    assert [(step.name.step, step.name.restart) for step in steps_of(tmp_path, "77")] == [("0", 0), ("0", 1), ("1", 1)]
    assert steps_of(tmp_path, "78") == []
