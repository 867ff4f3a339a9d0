"""`greyhound trace export`: a job's recorded calls as a timeline, and clear answers where there is none."""

import json
import os
import time
from statistics import median

import numpy as np
import pytest
from click.testing import CliRunner

from greyhound.cli.main import main
from greyhound.trace.dump import DumpWriter, read_dump
from tests.trace.dump_set import CALLS, COMPUTE_NS, ITERATIONS, calls_of, communicators, header, write_dumps
from tests.trace.event_rules import check, load, tracks
from tests.trace.ring_writer import RingWriter, make_records


def call(*arguments, code=0):
    done = CliRunner().invoke(main, ["trace", "export", *map(str, arguments)])
    assert done.exit_code == code, (done.output, done.exception)
    return done


def exported(tmp_path, *arguments, code=0, **options):
    made = write_dumps(tmp_path / "calls", **options)
    done = call(*made.paths, "-o", tmp_path / "out.json.gz", *arguments, code=code)
    trace = load(tmp_path / "out.json.gz")
    return trace, tracks(check(trace)), done


def lateness_ms(by_track, rank, what):
    """How much later than rank 0's the rank's slices of equal number begin."""
    first = {e["args"]["seq"]: e["ts"] for e in by_track[f"rank 0 {what}"]}
    return median((e["ts"] - first[e["args"]["seq"]]) / 1000 for e in by_track[f"rank {rank} {what}"])


@pytest.mark.parametrize("ahead_s", [(0.0, 0.0), (0.0, 0.3), (0.0, -360.0)])
def test_the_late_rank_begins_later_whatever_the_nodes_clocks_say(tmp_path, ahead_s):
    trace, by_track, done = exported(tmp_path, ahead_s=ahead_s)
    assert "1,920 calls of 4 ranks" in done.stdout
    for what in ("GPU", "host"):
        late = [lateness_ms(by_track, rank, what) for rank in range(4)]
        assert late == pytest.approx([0, 0, 40, 0], abs=0.3)
    ends = [by_track[f"rank {rank} GPU"][0] for rank in range(4)]
    assert np.ptp([e["ts"] + e["dur"] for e in ends]) < 300  # us: all leave a reduction together
    (_, other) = trace["otherData"]["clocks"]
    assert (other["offset_s"], other["applied"]) == (pytest.approx(ahead_s[1], abs=1e-3), True)
    assert "taken off" in done.stderr


def test_hosts_times_alone_do_not_hide_a_late_node_as_a_late_clock(tmp_path):
    trace, by_track, done = exported(tmp_path, timed=False, ranks=2, late=1)
    assert lateness_ms(by_track, 1, "host") == pytest.approx(40, abs=0.3)
    assert trace["otherData"]["clocks"][1]["applied"] is False
    assert "by the hosts' times only, not taken off" in done.stderr
    trace, by_track, _ = exported(tmp_path, timed=False, ahead_s=(0.0, 360.0))
    assert trace["otherData"]["clocks"][1]["applied"] is True
    assert abs(lateness_ms(by_track, 3, "host")) < 50


def test_ranks_of_one_machine_share_its_clock_whatever_their_nodes(tmp_path):
    trace, by_track, done = exported(tmp_path, boots=1)
    assert lateness_ms(by_track, 2, "GPU") == pytest.approx(40, abs=0.3)
    assert [row["clock"] for row in trace["otherData"]["clocks"]] == ["the timeline's clock"] * 2
    assert done.stderr == ""


def test_nodes_tracks_iterations_and_names(tmp_path):
    trace, by_track, _ = exported(tmp_path)
    names = [e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"]
    assert names == ["node 0", "node 1"]
    kinds = ("iterations", "host", "GPU")
    assert set(by_track) == {f"rank {rank} {kind}" for rank in range(4) for kind in kinds}
    assert len({(e["pid"], e["tid"]) for e in trace["traceEvents"] if e["ph"] == "X"}) == 12
    iterations = by_track["rank 1 iterations"]
    assert ITERATIONS - 3 <= len(iterations) <= ITERATIONS
    assert {round(e["args"]["seconds"], 2) for e in iterations} == {0.65}
    assert len(by_track["rank 1 host"]) == CALLS * ITERATIONS
    assert by_track["rank 1 host"][0]["name"] == "all_reduce dp 4 4 KiB"
    assert trace["otherData"] | {"calls": 0} == {
        "greyhound": trace["otherData"]["greyhound"],
        "begin": "2025-12-01T14:40:00.042Z",
        "ranks": 4,
        "calls": 0,
        "clocks": trace["otherData"]["clocks"],
    }


def test_standard_output_and_plain_files(tmp_path):
    made = write_dumps(tmp_path / "calls", ranks=2)
    done = CliRunner().invoke(main, ["trace", "export", str(made.paths[0]), "-o", "-"])
    check(json.loads(done.stdout))
    call(tmp_path / "calls", "-o", tmp_path / "out.json")
    assert (tmp_path / "out.json").read_bytes()[:1] == b"{"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["calls", "out.json"]


# -- jobs ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def record(tmp_path, monkeypatch):
    """The record folder of job 77, whose status names its nodes."""
    folder = tmp_path / "records/77/0.0"
    folder.mkdir(parents=True, mode=0o750)
    nodes = [{"index": 0, "name": "n1", "state": "tracking"}, {"index": 1, "name": "n2", "state": "gone"}]
    (folder / "status.json").write_text(json.dumps({"v": 1, "state": "ended", "nodes": nodes}))
    monkeypatch.chdir(tmp_path)
    return folder


def export_job(tmp_path, *arguments, code=0):
    return call("77", "--record-dir", tmp_path / "records", *arguments, code=code)


def test_a_job_is_exported_by_its_number_with_its_nodes_names(tmp_path, record):
    write_dumps(record)
    assert export_job(tmp_path).stdout.startswith("greyhound-77.trace.json.gz: 1,920 calls of 4 ranks")
    trace = load(tmp_path / "greyhound-77.trace.json.gz")
    assert [e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"] == ["n1", "n2"]


def test_of_several_recordings_the_newest_is_taken_unless_another_is_named(tmp_path, record):
    old = write_dumps(record, ranks=2, run="aaaaaaaa")
    write_dumps(record, run="bbbbbbbb")
    for path in old.paths:
        os.utime(path, (time.time() - 500, time.time() - 500))
    done = export_job(tmp_path)
    assert "of 4 ranks" in done.stdout and "the newest is bbbbbbbb (--run: aaaaaaaa)" in done.stderr
    assert "of 2 ranks" in export_job(tmp_path, "--run", "aaaaaaaa").stdout
    assert "no recording zzz; it has" in export_job(tmp_path, "--run", "zzz", code=3).stderr


def test_an_unknown_job_and_one_without_recordings(tmp_path, record):
    assert "greyhound trace record 77" in export_job(tmp_path, code=3).stderr
    done = call("78", "--record-dir", tmp_path / "records", code=2)
    assert "nothing is known of job '78'" in done.stderr
    assert "no such file, and no job either" in call("absent.ghdump", code=2).stderr
    assert "no such file" in call("77", "78", code=2).stderr
    (tmp_path / "empty").mkdir()
    assert "no recorded calls there" in call(tmp_path / "empty", code=3).stderr


# -- files that can't be used ------------------------------------------------------------------------------------------


def test_a_damaged_dump_is_named_and_the_others_are_done(tmp_path):
    made = write_dumps(tmp_path / "calls")
    whole = made.paths[1].read_bytes()
    made.paths[1].write_bytes(whole[: len(whole) // 2])
    done = call(*made.paths, "-o", tmp_path / "out.json", code=1)
    assert "of 3 ranks" in done.stdout
    assert f"{made.paths[1]}: not a recorded dump of Greyhound" in done.stderr
    assert {name.split()[1] for name in tracks(check(load(tmp_path / "out.json")))} == {"0", "2", "3"}


@pytest.mark.parametrize(
    ("fact", "value"),
    [
        ("boot_id", None),
        ("pid", "x"),
        ("world_rank", True),
        ("created_ns", -5),
        ("created_realtime_ns", 2**63),
        ("node_index", 1.5),
    ],
)
def test_facts_that_cannot_be_are_damage(tmp_path, fact, value):
    writer = DumpWriter(header(0, 0, "boot", 1, 2))
    writer.add(make_records(10), 0)
    writer.facts[fact] = value
    writer.save(tmp_path / "a.ghdump", communicators(0, 1))
    assert f"its fact '{fact}' is" in call(tmp_path / "a.ghdump", "-o", tmp_path / "out", code=1).stderr
    assert not (tmp_path / "out").exists()


def test_impossible_times_are_damage(tmp_path):
    writer = DumpWriter(header(0, 0, "boot", 1, 2))
    writer.add(make_records(10, t_ns=2**63), 0)
    writer.save(tmp_path / "a.ghdump", communicators(0, 1))
    assert "impossible times" in call(tmp_path / "a.ghdump", "-o", tmp_path / "out", code=1).stderr


def test_rings_text_and_empty_recordings_are_told_apart(tmp_path):
    RingWriter(tmp_path / "ring.1.1", 1024).append(make_records(5))
    (tmp_path / "text").write_text("hello")
    DumpWriter(header(0, 0, "boot", 1, 2)).save(tmp_path / "none.ghdump", communicators(0, 1))
    assert "no recorded call" in call(tmp_path / "none.ghdump", "-o", tmp_path / "out", code=3).stderr
    done = call(tmp_path / "ring.1.1", tmp_path / "text", tmp_path / "none.ghdump", "-o", tmp_path / "out", code=1)
    assert "a live ring: `greyhound trace dump`" in done.stderr
    assert "text: not a recorded dump" in done.stderr
    assert "none.ghdump: no call in it" in done.stderr
    assert "no recorded call in any of the files" in done.stderr


def test_a_dump_without_a_period_or_with_gaps_anywhere_is_shown(tmp_path):
    writer = DumpWriter(header(-1, 0, "boot", 1, 2))
    writer.add(make_records(3), 0)
    writer.add(make_records(2, t_ns=[5_000_000, 6_000_000]), 7)
    writer._gaps += [-3, 99]
    writer.save(tmp_path / "a.ghdump", communicators(0, 1))
    call(tmp_path / "a.ghdump", "-o", tmp_path / "out")
    found = check(load(tmp_path / "out"))
    assert set(tracks(found)) == {"process 999 host"}
    assert [e["ts"] for e in found["i"]] == [5000]


def test_a_ring_that_was_recorded_twice_is_shown_once(tmp_path):
    records = calls_of(0, 1, False, 10**12)
    for number, upto in enumerate((150, 240)):
        writer = DumpWriter(header(0, 0, "boot", 1, 2))
        writer.add(records[:upto], 0)
        writer.save(tmp_path / f"{number}.ghdump", communicators(0, 1))
    call(tmp_path / "0.ghdump", tmp_path / "1.ghdump", "-o", tmp_path / "out")
    by_track = tracks(check(load(tmp_path / "out")))
    assert [e["args"]["seq"] for e in by_track["rank 0 host"]] == list(range(240))
    ends = [round(e["ts"] + e["dur"]) for e in by_track["rank 0 iterations"]]
    assert len(ends) > 30 and ends == sorted(set(ends))


def test_what_cannot_be_written_leaves_nothing(tmp_path):
    made = write_dumps(tmp_path / "calls", ranks=2)
    done = call(*made.paths, "-o", tmp_path / "absent/out.json", code=1)
    assert "can't be written: No such file" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["calls"]
    (tmp_path / "taken.json").mkdir()
    call(*made.paths, "-o", tmp_path / "taken.json", code=2)


def test_the_dump_set_has_what_the_tests_believe(tmp_path):
    made = write_dumps(tmp_path / "calls")
    records = [read_dump(path).records for path in made.paths]
    assert {len(rows) for rows in records} == {2 * CALLS * ITERATIONS}
    assert made.late_ns < COMPUTE_NS
