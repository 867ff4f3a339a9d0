"""Events, status and record folders: readable while written, harmless when they can't be."""

import json
import os
from pathlib import Path

import pytest

from greyhound.control.events import EventLog, EventTail, read_events
from greyhound.control.names import StepName
from greyhound.control.record import open_record
from greyhound.control.status import StatusWriter, read_status

NAME = StepName("7", "0", 1)


def test_events_are_complete_lines_with_growing_numbers(tmp_path):
    path = tmp_path / "events.jsonl"
    tail = EventTail(path)
    assert tail.new() == []
    log = EventLog(path, NAME)
    log.append("start", 0.0, {"mode": "on"})
    log.append("suspect", 1.5, {"slowdown": 1.5}, episode="e1", iteration=12)
    first, second = tail.new()
    assert first["time"] == "1970-01-01T00:00:00.000Z"
    assert second == {
        "v": 1, "seq": 2, "time": "1970-01-01T00:00:01.500Z", "job": "7", "step": "0", "restart": 1,
        "kind": "suspect", "episode": "e1", "iteration": 12, "component": None, "data": {"slowdown": 1.5},
    }  # fmt: skip
    again = EventLog(path, NAME)
    again.append("end", 2.0)
    assert [event["seq"] for event in tail.new()] == [3]
    assert path.stat().st_mode & 0o777 & ~0o750 == 0


def test_half_a_line_waits_and_rubbish_is_skipped(tmp_path):
    path = tmp_path / "events.jsonl"
    tail = EventTail(path)
    path.write_bytes(b'{"kind":"start","seq":1}\nrubbish\n[1]\n{"kind":"e')
    assert [event["kind"] for event in tail.new()] == ["start"]
    with path.open("ab") as file:
        file.write(b'nd"}\n')
    assert [event["kind"] for event in tail.new()] == ["end"]
    assert len(list(read_events(path))) == 2


def test_events_that_cannot_be_written_do_no_harm(tmp_path, caplog):
    log = EventLog(tmp_path / "missing" / "events.jsonl", NAME)
    log.append("start", 0.0)
    log.append("end", 0.0)
    assert len(caplog.records) == 1
    assert "missing" in caplog.text


def test_record_copy_is_written_on_a_change_and_rarely(tmp_path):
    live, record = tmp_path / "live.json", tmp_path / "record.json"
    writer = StatusWriter(live, record)
    writer.update({"state": "waiting", "n": 0}, 0.0)
    writer.update({"state": "waiting", "n": 1}, 0.5)
    assert (read_status(live)["n"], read_status(record)["n"]) == (0, 0)
    writer.update({"state": "waiting", "n": 2}, 1.0)
    assert (read_status(live)["n"], read_status(record)["n"]) == (2, 0)
    writer.update({"state": "tracking", "n": 3}, 1.1)
    assert (read_status(live)["n"], read_status(record)["n"]) == (3, 3)
    writer.update({"state": "tracking", "n": 4}, 31.2)
    assert read_status(record)["n"] == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["live.json", "record.json"]


def test_status_of_nothing_and_of_rubbish(tmp_path):
    assert read_status(tmp_path / "none") is None
    for text in ("", "{", "[]", json.dumps({"x": 1})):
        (tmp_path / "status.json").write_text(text)
        assert read_status(tmp_path / "status.json") is None


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def test_record_folder_is_private(tmp_path, home):
    record = open_record(tmp_path / "records", NAME, tmp_path)
    assert record.folder == tmp_path / "records" / "7" / "0.1"
    assert record.notice == ""
    for folder in (record.folder, record.folder.parent):
        assert folder.stat().st_mode & 0o777 == 0o750


def test_unusable_record_folder_falls_back_and_says_so(tmp_path, home):
    (tmp_path / "file").write_text("")
    record = open_record(tmp_path / "file", NAME, tmp_path / "step")
    assert record.folder == home / ".local/state/greyhound/7/0.1"
    assert str(tmp_path / "file") in record.notice
    assert str(record.folder) in record.notice
    (tmp_path / "step").mkdir()
    os.environ["HOME"] = str(tmp_path / "file")
    record = open_record(tmp_path / "file", NAME, tmp_path / "step")
    assert record.folder == Path(tmp_path / "step")
    assert "lost when the step ends" in record.notice
