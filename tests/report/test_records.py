"""Step records from event logs: ended, killed, damaged, of another release, and written by a real EventLog."""

import errno
import json
import os

import pytest

from greyhound.control.events import EventLog, parse_event, read_events
from greyhound.control.names import StepName
from greyhound.control.summary import Gathered, parse
from greyhound.control.verdict_data import component
from greyhound.report import folders, output, records, table
from greyhound.report.build import attempts, by_job, summary_of
from greyhound.report.folders import jobs_below, read_step, steps_of
from greyhound.report.groups import UNATTRIBUTED, merged, sums
from greyhound.report.records import STILL_OPEN, read_log, replay
from tests.report.test_build import run

NAME = StepName("77", "0", 0)
BEGAN_S = 1_767_225_600.0
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
    assert [(episode.id, episode.ended_by) for episode in step.episodes] == [("e1", "recovered"), ("e2", STILL_OPEN)]
    assert read_step(tmp_path, NAME, running=True).state == "running"


def test_an_open_episode_of_a_killed_step_counts_until_its_last_sign_of_life(tmp_path):
    log = EventLog(tmp_path / "events.jsonl", NAME)
    log.append("start", BEGAN_S, {"mode": "observe"})
    log.append("tracking", BEGAN_S + 10, {"ranks": 8})
    log.append("suspect", BEGAN_S + 44, SLOW, "e1", 44)
    (episode,) = read_step(tmp_path, NAME).episodes
    assert (episode.duration_s, episode.end) == (pytest.approx(4.0), None)
    assert episode.lost_s == pytest.approx(4.0 / 3)

    status = {"v": 1, "state": "suspect", "time": "2026-01-01T00:01:40.000Z", "iteration": 90}
    (tmp_path / "status.json").write_text(json.dumps(status))
    step = read_step(tmp_path, NAME)
    assert (step.state, step.iterations, step.last_s) == ("killed", 90, BEGAN_S + 100)
    assert step.episodes[0].duration_s == pytest.approx(60.0)
    assert step.episodes[0].lost_s == pytest.approx(20.0)
    assert summary_of([step]).text() == "greyhound: 1 fail-slow, 60 s, 1.50x"


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


def suspect(kind="gpu", nodes=("n3",), **more):
    row = {"kind": kind, "nodes": list(nodes), "ranks": [5], "rank_count": 1, "bus": None, "peer": None}
    return {**row, "ratio": 1.9, "share": 0.97, "confidence": 0.9, "reasons": ["waits least"], **more}


def verdict(path, *suspects, episode="e1", abstained=None, kind="verdict"):
    """As the master writes it."""
    names = [component(row) for row in suspects[:1]]
    data = {"run": "r", "suspects": list(suspects), "explained": 0.9, "abstained": abstained, "notes": []}
    EventLog(path, NAME).append(kind, 1210.0, data, episode, 210, *names)


def test_a_verdict_names_component_evidence_and_what_else_was_slow(tmp_path):
    path = write(tmp_path, end=False)
    gpu, link = suspect(bus="0000:01:00.0"), suspect("link", ("n2", "n1"), ratio=1.3)
    verdict(path, abstained="no peers to compare with")
    verdict(path, gpu, link)
    verdict(path, abstained="asked again: nothing stands out")
    verdict(path, link, episode="e2")
    first, second = read_step(tmp_path, NAME).episodes
    assert (first.kind, first.node, first.bus, first.rank) == ("gpu", "n3", "0000:01:00.0", 5)
    assert (first.evidence, first.share, first.also) == (("waits least",), 0.97, ("link n2 n1 1.30x",))
    assert (second.kind, second.node, second.peer) == ("link", "n2", "n1")
    (attempt,) = attempts(by_job([run(raw_id="77")]), lambda job, running: [read_step(tmp_path, NAME)], lambda u: None)
    keys = {by: [row.key for row in merged([sums([attempt], by)])] for by in ("gpu", "link", "cause", "node")}
    assert sorted(keys["gpu"]) == [UNATTRIBUTED, "n3 0000:01:00.0"]
    assert sorted(keys["link"]) == [UNATTRIBUTED, "n1 - n2"]
    assert sorted(keys["cause"]) == ["gpu", "link"] and sorted(keys["node"]) == ["n2", "n3"]
    shown = "\n".join(table.runs_table([attempt]))
    assert "gpu n3 0000:01:00.0 (also link n2 n1 1.30x)" in shown and "link n2 n1" in shown
    assert summary_of([read_step(tmp_path, NAME)]).text().endswith("n3 0000:01:00.0, n2 n1")


def test_nobody_is_named_where_a_verdict_abstained(tmp_path):
    verdict(write(tmp_path), abstained="no peers to compare with")
    first, _ = read_step(tmp_path, NAME).episodes
    assert (first.kind, first.node, first.evidence) == ("", "", ("not attributed: no peers to compare with",))


def test_what_is_slow_without_a_fail_slow_or_stands_still_is_the_step_s_own(tmp_path):
    path = write(tmp_path)
    verdict(path, suspect("cpu", ("n4",)), episode=None)
    verdict(path, suspect("storage", ("n1", "n2", "n3")), episode=None)
    verdict(path, suspect(bus="0000:02:00.0"), episode=None, kind="fail_stop")
    step = read_step(tmp_path, NAME)
    assert step.components == ("n4 cpu", "storage", "fail-stop n3 0000:02:00.0")
    text = summary_of([step]).text()
    assert text.endswith("n4 cpu, storage, fail-stop n3 0000:02:00.0") and parse(text).text() == text
    gathered = Gathered()
    for event in read_events(path):
        gathered.take(event)
    assert gathered.summary.text() == text
    (attempt,) = attempts(by_job([run(raw_id="77")]), lambda job, running: [step], lambda user: None)
    assert output.attempt_row(attempt)["components"] == sorted(step.components)
    assert "beside fail-slows: fail-stop n3" in "\n".join(table.runs_table([attempt]))


@pytest.mark.parametrize(
    "data",
    [None, [], {"suspects": 5}, {"suspects": [None, {"nodes": [5], "ratio": "x"}, {"nodes": 7}], "abstained": []}],
)
@pytest.mark.parametrize("where", [None, 5, {"node": 5, "kind": [], "rank": True}])
def test_a_strange_verdict_is_no_traceback(tmp_path, data, where):
    path = write(tmp_path, end=False)
    with path.open("a") as file:
        file.write(json.dumps({"v": 1, "kind": "verdict", "episode": "e1", "component": where, "data": data}) + "\n")
    (attempt,) = attempts(by_job([run(raw_id="77")]), lambda job, running: [read_step(tmp_path, NAME)], lambda u: None)
    assert output.attempt_row(attempt)["fail_slows"] == 2 and "".join(table.runs_table([attempt]))


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


HOSTILE = [
    '{"lost_s": Infinity, "duration_s": NaN, "slowdown": -Infinity}',
    '{"lost_s": 1e308, "duration_s": 1e308, "slow_s": 1e-308, "healthy_s": 1}',
    '{"onset": 1%s, "end": 1%s, "lost_s": 1%s}' % (("0" * 400,) * 3),
    '{"onset_time": "0001-01-01T00:00:00+14:00"}',
    '{"onset_time": "9999-12-31T23:59:59-14:00", "cause": "\\ud800"}',
    json.dumps({"onset_time": "2026-01-01T00:00:00", "cause": "x" * 100_000}),
    '{"onset_time": 5, "cause": ["x"], "end": true, "duration_s": {}}',
]


@pytest.mark.parametrize("data", HOSTILE)
@pytest.mark.parametrize("kind", ["suspect", "recovered", "end"])
def test_whatever_a_record_says_can_be_printed(tmp_path, data, kind):
    write(tmp_path, end=False)
    line = '{"v":1,"kind":"%s","time":"9999-99-99","iteration":1%s,"episode":"\\ud83d","data":%s}'
    if kind == "end":
        data = '{"iterations":-5,"episodes":[' + data.replace("{", '{"id":"\\udfff",', 1) + "]}"
    with (tmp_path / "events.jsonl").open("a") as file:
        file.write(line % (kind, "0" * 300, data) + "\n")
    step = read_step(tmp_path, NAME)
    (attempt,) = attempts(by_job([run(raw_id="77")]), lambda job, running: [step], lambda user: None)
    text = json.dumps(output.attempt_row(attempt), ensure_ascii=False, allow_nan=False)
    assert len(text) < 10_000
    text.encode()
    for shown in table.runs_table([attempt]):
        shown.encode()
    summary_of([step]).text().encode()


@pytest.mark.parametrize(
    "more", ["", '{"v":1,"kind":"verdict","episode":"e1","data":{"cause":"hot"}}\n', "{torn", '{"v":2}\n']
)
@pytest.mark.parametrize("end", [True, False])
def test_what_an_end_overtakes_need_not_be_read(tmp_path, monkeypatch, more, end):
    path = write(tmp_path, end=False)
    with path.open("a") as file:
        file.write(more + "\n")
    if end:
        write(tmp_path)
    content, parsed = path.read_bytes(), []
    monkeypatch.setattr(records, "parse_event", lambda line: parsed.append(line) or parse_event(line))
    few, told = read_log(content)
    assert (len(parsed) < len(content.splitlines()) - 1) == end  # an empty line is no event
    whole, said = replay(content.decode().split("\n"))
    assert few.record(NAME, 0, False, told) == whole.record(NAME, 0, False, said)


def test_a_log_that_is_too_long_is_not_read(tmp_path):
    path = write(tmp_path)
    os.truncate(path, 1 << 40)
    step = read_step(tmp_path, NAME)
    assert step.state == "unreadable" and "no log of ours is that long" in step.problems[0]


def test_a_folder_that_may_not_be_read_is_told(tmp_path, monkeypatch):
    write(tmp_path / "77" / "0.0")

    def refuse(path):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    monkeypatch.setattr(folders.os, "scandir", refuse)
    (step,) = steps_of([tmp_path], "77")
    assert step.state == "unreadable" and "Permission denied" in step.problems[0]
    assert steps_of([tmp_path / "another's home"], "77") == []


def test_a_strangers_folder_hides_no_record(tmp_path):
    write(tmp_path / "open" / "77" / "0.0")
    write(tmp_path / "home" / "77" / "0.0")
    steps = steps_of([tmp_path / "open", tmp_path / "home"], "77")
    one, other = (step._replace(owner_uid=uid) for step, uid in zip(steps, (1, 2), strict=True))
    (attempt,) = attempts(by_job([run(raw_id="77")]), lambda job, running: [one, other], lambda user: 2)
    assert attempt.steps == (other,)


def test_jobs_of_slurm_are_told_from_others(tmp_path):
    for name in ("77", "5", "local-12", "0", "x", "007"):
        (tmp_path / name).mkdir()
    assert jobs_below([tmp_path, tmp_path / "none"]) == ["5", "77"]


def test_no_log_is_no_record_and_a_fifo_is_no_wait(tmp_path):
    assert read_step(tmp_path, NAME) is None
    os.mkfifo(tmp_path / "events.jsonl")
    assert read_step(tmp_path, NAME).state == "unreadable"


def test_all_steps_and_restarts_of_a_job_are_found(tmp_path):
    for folder in ("0.0", "0.1", "1.1", "other", "0.x"):
        write(tmp_path / "77" / folder)
    found = steps_of([tmp_path], "77")
    assert [(step.name.step, step.name.restart) for step in found] == [("0", 0), ("0", 1), ("1", 1)]
    assert steps_of([tmp_path], "78") == []
