"""Events of a rank's calls: the format's rules hold for any records, and nothing is held while they are written."""

import io
import json
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from greyhound.trace import layout, timeline
from greyhound.trace.records import COMM_DTYPE, RECORD_DTYPE
from greyhound.trace.timeline import Comm, RankTimeline, Spot, apart, comm_words, in_units, process_events
from greyhound.trace.timeline_file import TimelineFile, microseconds
from tests.trace.event_rules import check, tracks
from tests.trace.ring_writer import make_records

COMM = 0xABCDEF
SPOT = Spot(1, 1, "rank 3", 0)


def events(records, comms=None, spot=SPOT, iterations=(), gaps=()):
    stream = io.BytesIO()
    file = TimelineFile(stream, compress=False)
    rank = RankTimeline(spot, comms or {})
    for part in (process_events(1, "n1", ["clock"]), rank.iterations(iterations), rank.calls(records), rank.gaps(gaps)):
        for event in part:
            file.add(event)
    file.close({"calls": len(records)})
    trace = json.loads(stream.getvalue())
    assert len(trace["traceEvents"]) == file.count
    return check(trace)


def timing(records, start_ns, took_ns):
    """GPU timings of records, as the hook writes them (struct gh_timing)."""
    timed = records.copy()
    timed["op"] |= layout.GH_OP_TIMING
    timed["aux"], timed["thread"] = records["t_ns"] >> np.uint64(32), records["t_ns"] & np.uint64(0xFFFFFFFF)
    timed["t_ns"], timed["host_ns"] = start_ns, took_ns
    timed["redop"] = 0
    return timed


def test_a_call_is_named_by_what_it_is_and_lasts_as_long_as_the_host_was_in_it():
    records = make_records(1, t_ns=5_000_123, host_ns=2_001, seq=7, bytes=4 << 20, dtype=7)
    found = events(records, {COMM: Comm(4, 2, "dp")})
    (event,) = tracks(found)["rank 3 host"]
    assert (event["name"], event["ts"], event["dur"]) == ("all_reduce dp 4 4 MiB", 5000.123, 2.001)
    assert event["args"] == {
        "seq": 7, "bytes": 4 << 20, "communicator": "0000000000abcdef", "size": 4, "rank_in_it": 2, "role": "dp",
        "dtype": "float32",
    }  # fmt: skip


def test_gpu_timings_have_a_track_of_their_own_with_the_whole_duration():
    records = make_records(3, seq=np.arange(3))
    timed = timing(records, np.array([100, 5_000, 9_000]) * 1000, np.array([4_000, 3_000, 1_000]) * 1000)
    timed["redop"][2] = 1  # the upper half: 2**32 ns more
    by_track = tracks(events(np.concatenate([records, timed])))
    assert [(e["ts"], e["dur"]) for e in by_track["rank 3 GPU"]] == [
        (100, 4000),
        (5000, 3000),
        (9000, 1000 + 4294967.296),
    ]
    assert {e["name"] for e in by_track["rank 3 GPU"]} == {"all_reduce 4 KiB"}
    assert len(by_track["rank 3 host"]) == 3


def test_a_timed_group_is_one_slice():
    records = make_records(4, op=layout.GH_OP_SEND, group=[5, 5, 6, 0], seq=np.arange(4), peer=1)
    timed = timing(records, np.array([10, 10, 50, 90]) * 1000, 20_000)
    by_track = tracks(events(timed))
    assert [(e["name"], e["ts"]) for e in by_track["rank 3 GPU"]] == [
        ("group 8 KiB", 10), ("send 4 KiB", 50), ("send 4 KiB", 90)
    ]  # fmt: skip


def test_threads_and_streams_have_tracks_and_very_many_share_the_last():
    records = make_records(300, thread=np.arange(300) % 100, stream=np.arange(300) % 50, host_ns=10**7)
    by_track = tracks(events(np.concatenate([records, timing(records, records["t_ns"], 10**7)])))
    assert {"rank 3 host", "rank 3 host, thread 2", "rank 3 GPU, stream 1", "rank 3 GPU, stream 32"} <= set(by_track)
    assert len(by_track) == 31 + 32
    assert sum(map(len, by_track.values())) == 600


def test_iterations_and_losses_are_shown():
    found = events(make_records(1), iterations=[(4, 3_000_000, 1_000_000), (5, 4_500_000, 1_500_001)], gaps=[2_000_000])
    assert [(e["name"], e["ts"], e["dur"]) for e in tracks(found)["rank 3 iterations"]] == [
        ("iteration 4", 2000, 1000), ("iteration 5", 3000, 1500)
    ]  # fmt: skip
    assert [(e["name"], e["ts"]) for e in found["i"]] == [("calls were lost here", 2000)]


def test_names_of_any_text_stay_json():
    evil = 'n1"},{"ph":"X\\ \n\u2028‮<script>'
    spot = Spot(1, 1, evil, 0)
    found = events(make_records(2), {COMM: Comm(2, 0, evil)}, spot)
    assert next(iter(tracks(found))) == f"{evil} host"
    assert evil in found["X"][0]["name"]


def test_an_unknown_operation_or_communicator_is_shown_as_it_is():
    assert [e["name"] for e in events(make_records(1, op=99, comm=0, bytes=0))["X"]] == ["operation 99"]


def test_communicators_of_a_dump():
    table = np.zeros(2, dtype=COMM_DTYPE)
    table["hash"], table["size"], table["rank"] = [7, 8], [4, 2], [1, 0]
    table["state"] = layout.GH_COMM_LIVE, layout.GH_COMM_PENDING
    assert comm_words(table, {7: "tp"}) == {7: Comm(4, 1, "tp")}
    assert (Comm(4, 1, "tp").words, Comm(4, 1).words, Comm(0, -1).words) == ("tp 4", "4 ranks", "")


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (4 << 20, "4 MiB"), (1 << 60, "1048576 TiB")]
)
def test_sizes_in_words(size, text):
    assert in_units(size) == text


@given(st.lists(st.tuples(st.integers(-(2**62), 2**62), st.integers(-5, 2**40)), max_size=20), st.integers(0, 2**62))
def test_slices_of_a_track_never_overlap(spans, until):
    spans.sort()
    starts = np.array([start for start, _ in spans], dtype=np.int64)
    starts, lengths = apart(starts, np.array([took for _, took in spans], dtype=np.int64), until)
    assert (starts >= until).all() and (lengths >= 0).all()
    assert (starts[1:] >= (starts + lengths)[:-1]).all()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_the_rules_hold_for_any_records(seed):
    rng = np.random.default_rng(seed)
    raw = rng.integers(0, 256, 64 * 40, dtype=np.uint8).view(RECORD_DTYPE)
    raw["t_ns"] >>= np.uint64(2)
    raw["thread"] %= 3
    events(raw, {}, Spot(1, 1, "r", -int(raw["t_ns"].min())))


def test_no_nanosecond_is_lost():
    assert microseconds(1_764_000_000_123_456_789) == "1764000000123456.789"
    assert microseconds(7) == "0.007"


def test_events_are_written_without_being_held(monkeypatch):
    monkeypatch.setattr(timeline, "CHUNK", 256)
    calls = 1 << 14
    records = make_records(calls, seq=np.arange(calls), host_ns=500)

    class Counted(io.RawIOBase):
        written = 0

        def write(self, data):
            Counted.written += len(data)
            return len(data)

    rank, file = RankTimeline(SPOT, {}), TimelineFile(Counted(), compress=False)
    tracemalloc.start()
    try:
        for event in rank.calls(records):
            file.add(event)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert Counted.written > calls * 100
    assert peak < Counted.written / 2
