"""Events, status and record folders: readable while written, harmless when they can't be."""

import contextlib
import json
import os
import resource
from pathlib import Path

import pytest

from greyhound.control import events, files
from greyhound.control.events import EventLog, EventTail, read_events
from greyhound.control.names import StepName
from greyhound.control.record import folder, open_record
from greyhound.control.status import StatusWriter, read_status

NAME = StepName("7", "0", 1)
STRANGER = 12345
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")


@contextlib.contextmanager
def full_after(size_bytes):
    """A disk on which no file can grow beyond a size: the write that would is cut short, the next one refused."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)


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


def test_a_log_is_read_in_bounded_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(events, "CHUNK_BYTES", 64)
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"kind":"start"}\n' + b"x" * 200 + b'\n{"kind":"end"}\n')
    tail = EventTail(path)
    assert [event["kind"] for event in tail.new()] == ["start", "end"]


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
    for level in (record.folder, record.folder.parent):
        assert level.stat().st_mode & 0o777 == 0o750


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


def premade(records):
    """What somebody who guessed the job's number could lay in its way."""
    place = folder(records, NAME)
    place.mkdir(parents=True)
    return place


def test_record_folder_that_others_can_write_is_not_used(tmp_path, home):
    place = premade(tmp_path / "records")
    for level in (place, place.parent):
        for open_to in (0o775, 0o757):
            level.chmod(open_to)
            record = open_record(tmp_path / "records", NAME, tmp_path)
            assert record.folder == folder(home / ".local/state/greyhound", NAME)
            assert f"{level} can be written by others" in record.notice
            level.chmod(0o750)
    assert open_record(tmp_path / "records", NAME, tmp_path).folder == place


@as_root
def test_record_folder_of_a_stranger_is_not_used(tmp_path, home):
    place = premade(tmp_path / "records")
    for level in (place, place.parent):
        os.chown(level, STRANGER, STRANGER)
        record = open_record(tmp_path / "records", NAME, tmp_path)
        assert record.folder == folder(home / ".local/state/greyhound", NAME)
        assert f"{level} belongs to uid {STRANGER}" in record.notice
        os.chown(level, 0, 0)


@pytest.mark.parametrize("level", [0, 1])
def test_record_folder_behind_a_link_is_not_used(tmp_path, home, level):
    (tmp_path / "elsewhere" / "0.1").mkdir(parents=True)
    place = folder(tmp_path / "records", NAME)
    path = (place, place.parent)[level]
    path.parent.mkdir(parents=True)
    path.symlink_to(tmp_path / "elsewhere")
    record = open_record(tmp_path / "records", NAME, tmp_path)
    assert record.folder == folder(home / ".local/state/greyhound", NAME)
    assert f"{path} is no directory" in record.notice


def test_links_in_the_record_folder_are_not_followed(tmp_path, monkeypatch, caplog):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for name in ("events.jsonl", f".status.json.{os.getpid()}"):
        (tmp_path / name).symlink_to(victim)
    EventLog(tmp_path / "events.jsonl", NAME).append("start", 0.0)
    StatusWriter(None, tmp_path / "status.json").update({"state": "waiting"}, 0.0)
    monkeypatch.setattr(files.secrets, "token_hex", lambda count: "foreseen")
    (tmp_path / ".other.json.foreseen").symlink_to(victim)
    StatusWriter(None, tmp_path / "other.json").update({"state": "waiting"}, 0.0)
    assert victim.read_text() == "precious"
    assert "events can't be written" in caplog.text
    assert "other.json" in caplog.text
    assert read_status(tmp_path / "status.json") == {"state": "waiting"}
    (tmp_path / "log.jsonl").symlink_to(victim)
    with pytest.raises(OSError, match="log"):
        files.open_to_append(tmp_path / "log.jsonl")


@as_root
def test_files_in_a_strangers_folder_are_not_written(tmp_path):
    place = tmp_path / "theirs"
    place.mkdir()
    os.chown(place, STRANGER, STRANGER)
    EventLog(place / "events.jsonl", NAME).append("start", 0.0)
    StatusWriter(None, place / "status.json").update({"state": "waiting"}, 0.0)
    assert list(place.iterdir()) == []


def test_a_fifo_in_the_way_holds_nobody_up(tmp_path):
    for name in ("events.jsonl", "status.json"):
        os.mkfifo(tmp_path / name)
    EventLog(tmp_path / "events.jsonl", NAME).append("start", 0.0)
    assert EventTail(tmp_path / "events.jsonl").new() == []
    assert read_status(tmp_path / "status.json") is None


def test_full_disk_leaves_the_old_status_whole_and_no_litter(tmp_path, caplog):
    path = tmp_path / "status.json"
    writer = StatusWriter(None, path)
    writer.update({"state": "waiting"}, 0.0)
    with full_after(100):
        writer.update({"state": "tracking", "notices": ["x" * 400]}, 1.0)
    assert read_status(path) == {"state": "waiting"}
    assert [entry.name for entry in tmp_path.iterdir()] == ["status.json"]
    assert caplog.text.count("status can't be written") == 1
    writer.update({"state": "suspect"}, 2.0)
    assert read_status(path) == {"state": "suspect"}


def test_half_an_event_does_not_swallow_the_next(tmp_path, caplog):
    path = tmp_path / "events.jsonl"
    log = EventLog(path, NAME)
    log.append("start", 0.0)
    with full_after(path.stat().st_size + 20):
        log.append("tracking", 1.0)
    log.append("suspect", 2.0)
    log.append("recovered", 3.0)
    assert [event["kind"] for event in read_events(path)] == ["start", "suspect", "recovered"]
    assert caplog.text.count("events can't be written") == 1
    assert path.read_bytes().count(b"\n") == 4


def test_half_an_event_of_a_dead_writer_does_not_swallow_the_next(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_text('{"kind":"start","seq":7}\n{"kind":"tra')
    EventLog(path, NAME).append("end", 2.0)
    assert [(event["kind"], event["seq"]) for event in read_events(path)] == [("start", 7), ("end", 8)]
