"""What the owner asks of a running job: the files, and what the master makes of them."""

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greyhound.config import Settings
from greyhound.control import requests
from greyhound.control.events import read_events
from greyhound.control.messages import AbStop, AbWindow, Hello, IterationBatch, Set, decode
from greyhound.control.profile_message import ProfileOrder
from greyhound.control.requests import RequestBox, RequestError, submit, withdraw
from tests.control.test_master import Bench, FlakyBus, sample


def test_request_arrives_once_and_is_the_owner_s_alone(tmp_path):
    tmp_path.chmod(0o750)
    first = submit(tmp_path, "set", {"mode": "off", "threshold": 0.05})
    (file,) = tmp_path.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    box = RequestBox(tmp_path)
    (taken,) = box.take()
    assert (taken.id, taken.kind, taken.fields, taken.why_not) == (
        first, "set", {"mode": "off", "threshold": 0.05}, "",
    )  # fmt: skip
    assert box.take() == [] and list(tmp_path.iterdir()) == []
    second = submit(tmp_path, "ab", {})
    assert withdraw(tmp_path, second) and not withdraw(tmp_path, second)


@pytest.mark.parametrize(
    ("kind", "fields", "part"),
    [
        ("dance", {}, "'dance'"),
        ("set", {"mode": "fast"}, "mode: 'fast'"),
        ("set", {"threshold": 7}, "threshold: 7"),
        ("set", {"threshold": True}, "threshold: True"),
        ("set", {"threshold": float("nan")}, "threshold: nan"),
        ("set", {"threshold": "0.1"}, "threshold: '0.1'"),
        ("set", {"colour": 1}, "'colour'"),
        ("ab", {"minutes": 1e9}, "minutes"),
        ("ab_stop", {"minutes": 1}, "'minutes'"),
    ],
)
def test_bad_request_is_refused_on_both_sides(tmp_path, kind, fields, part):
    with pytest.raises(RequestError, match=part.replace("'", ".")):
        submit(tmp_path, kind, fields)
    write(tmp_path, json.dumps({"v": 1, "kind": kind, "fields": fields}))
    (taken,) = RequestBox(tmp_path).take()
    assert part in taken.why_not and taken.kind == "" and taken.fields == {}


def write(folder, text, name="request.0123456789abcdef.json", mode=0o600):
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    path.chmod(mode)
    return path


@given(st.text(max_size=50) | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(json.dumps))
def test_any_text_is_refused_or_harmless(tmp_path_factory, text):
    folder = tmp_path_factory.mktemp("requests")
    write(folder, text.encode(errors="replace"))
    (taken,) = RequestBox(folder).take()
    assert taken.why_not


def test_files_that_are_not_the_owner_s_alone_are_refused_and_removed(tmp_path):
    good = json.dumps({"v": 1, "kind": "set", "fields": {"mode": "off"}})
    write(tmp_path, good, "request.0000000000000001.json", 0o644)
    write(tmp_path, good + " " * 5000, "request.0000000000000002.json")
    (tmp_path / "request.0000000000000003.json").symlink_to(write(tmp_path, good, "elsewhere"))
    os.link(write(tmp_path, good, "linked"), tmp_path / "request.0000000000000004.json")
    os.mkfifo(tmp_path / "request.0000000000000005.json", 0o600)
    if os.geteuid() == 0:
        os.chown(write(tmp_path, good, "request.0000000000000006.json"), 12345, 12345)
    write(tmp_path, good, "request.xyz.json")
    taken = RequestBox(tmp_path).take()
    assert len(taken) == (6 if os.geteuid() == 0 else 5)
    assert all(request.why_not and not request.kind for request in taken)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", "linked", "request.xyz.json"]


def test_file_that_cannot_be_removed_is_carried_out_once(tmp_path, monkeypatch):
    submit(tmp_path, "set", {"mode": "off"})

    def refused(self, **keywords):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(requests.Path, "unlink", refused)
    box = RequestBox(tmp_path)
    assert [len(box.take()) for _ in range(3)] == [1, 0, 0]


# -- the master ---------------------------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch):
    """The master's wall clock: each round is a second."""
    from greyhound.control import master

    now = [1_700_000_000.0]
    monkeypatch.setattr(master.time, "time", lambda: now[0])
    return now


@pytest.fixture
def bench(tmp_path, clock):
    made = Bench(tmp_path)
    made.clock = clock
    return made


def rounds(bench, count=1):
    for _ in range(count):
        bench.clock[0] += 1.0
        bench.send(IterationBatch("tracking", [sample(0, 44, 1.0), sample(1, 44, 1.0)]))
        bench.master.round(bench.bus, 0.0)


def told(bus):
    """What the nodes were told, but to profile."""
    return [data for data in (decode(text).data for text in bus.read("down")) if not isinstance(data, ProfileOrder)]


def settings_of(bench):
    return [event["data"] for event in read_events(bench.record / "events.jsonl") if event["kind"] == "setting"]


def test_settings_are_carried_out_answered_and_sent(bench):
    bench.send(Hello("n1", "host", 1))
    request = submit(bench.record, "set", {"threshold": 0.05, "mode": "observe"})
    rounds(bench, 2)
    (answer,) = settings_of(bench)
    assert (answer["request"], answer["applied"], answer["mode"]) == (request, True, "observe")
    assert told(bench.node) == [Set("observe", 0.05)]
    status = bench.master.job.status(bench.clock[0])
    assert (status["mode"], status["settings"]["threshold"], status["answered"]["request"]) == (
        "observe", 0.05, request,
    )  # fmt: skip
    late = FlakyBus(bench.bus)
    assert told(late) == [Set("observe", 0.05)]


def test_another_redis_is_told_again(bench):
    rounds(bench)
    submit(bench.record, "set", {"mode": "off"})
    rounds(bench, 2)
    bench.bus = FlakyBus()
    rounds(bench)
    assert told(FlakyBus(bench.bus)) == [Set("off", 0.1)]


def test_ceiling_of_the_site_holds(tmp_path, clock):
    bench = Bench(tmp_path, settings=Settings(mode="observe", max_mode="observe"))
    bench.clock = clock
    submit(bench.record, "set", {"mode": "on"})
    rounds(bench, 2)
    (answer,) = settings_of(bench)
    assert answer["mode"] == "observe" and "the site allows observe" in answer["text"]
    assert told(bench.node) == [Set("observe", 0.1)]


def test_refused_request_is_answered(bench):
    write(bench.record, "{}")
    rounds(bench)
    (answer,) = settings_of(bench)
    assert not answer["applied"] and answer["request"] == "0123456789abcdef"


def test_comparison_begins_stops_and_is_refused_where_it_can_say_nothing(bench):
    bench.send(Hello("n1", "host", 1))
    submit(bench.record, "ab", {"minutes": 5})
    bench.master.round(bench.bus, 0.0)
    assert "not now" in settings_of(bench)[-1]["text"]
    rounds(bench, 8)
    submit(bench.record, "ab", {"minutes": 0.1})
    rounds(bench)
    assert "at least --minutes" in settings_of(bench)[-1]["text"]
    submit(bench.record, "ab", {"minutes": 5})
    rounds(bench, 2)
    assert settings_of(bench)[-1]["applied"]
    submit(bench.record, "ab", {"minutes": 5})
    rounds(bench)
    assert settings_of(bench)[-1]["text"] == "a comparison is under way already"
    assert isinstance(told(bench.node)[0], AbWindow)
    submit(bench.record, "ab_stop", {})
    rounds(bench, 2)
    assert isinstance(told(bench.node)[-1], AbStop)
    assert bench.master.job.status(bench.clock[0])["ab"] is None
