"""`greyhound trace dump`, and `greyhound detect` on what it wrote."""

import json

import numpy as np
from click.testing import CliRunner

from greyhound.bench.ring_writer import RingWriter, make_records
from greyhound.cli.main import main
from greyhound.trace import layout

CALLS = 12
ITERATIONS = 300
SLOW = range(150, 220)


def call(*arguments, code=0):
    done = CliRunner().invoke(main, [*map(str, arguments)])
    assert done.exit_code == code, (done.output, done.exception)
    return done


def training_records():
    """300 iterations of 12 calls, 0.5 s each, the 150th to 219th of 0.8 s."""
    durations_s = np.array([0.8 if number in SLOW else 0.5 for number in range(ITERATIONS)])
    durations_s *= np.random.default_rng(3).normal(1, 0.003, ITERATIONS)
    starts_s = np.cumsum(durations_s) - durations_s
    times_s = (starts_s[:, None] + durations_s[:, None] * np.arange(CALLS) / CALLS).ravel()
    sizes = np.tile([4096] * (CALLS - 2) + [1 << 20, 8], ITERATIONS)
    return make_records(CALLS * ITERATIONS, t_ns=(times_s * 1e9).astype(np.uint64), bytes=sizes)


def test_a_dumped_ring_tells_what_was_slow(tmp_path):
    RingWriter(tmp_path / "ring.1.1", 4096).append(training_records())
    done = call("trace", "dump", tmp_path / "ring.1.1", "-o", tmp_path / "rank.npz")
    assert "3600 calls" in done.stdout
    found = json.loads(call("detect", "--json", tmp_path / "rank.npz").stdout)
    (episode,) = found["episodes"]
    assert abs(episode["onset"] - 150) <= 2
    assert abs(episode["end"] - 220) <= 2
    assert abs(episode["slowdown"] - 1.6) < 0.03
    assert ITERATIONS - 3 <= found["n"] <= ITERATIONS


def with_timings(records):
    """A GPU timing of each call, told five calls later."""
    timings = records.copy()
    timings["op"] |= layout.GH_OP_TIMING
    timings["t_ns"] += 1000
    order = np.argsort(np.concatenate([np.arange(len(records)) * 2, np.arange(len(records)) * 2 + 11]), kind="stable")
    return np.concatenate([records, timings])[order]


def test_gpu_timings_change_nothing_that_is_found(tmp_path):
    found = []
    for name, records in (("plain", training_records()), ("timed", with_timings(training_records()))):
        RingWriter(tmp_path / name, 8192).append(records)
        call("trace", "dump", tmp_path / name, "-o", tmp_path / f"{name}.npz")
        found.append(json.loads(call("detect", "--json", tmp_path / f"{name}.npz").stdout) | {"file": ""})
    assert found[0] == found[1] and len(found[0]["episodes"]) == 1


def test_a_ring_too_short_for_an_iteration_is_no_data(tmp_path):
    RingWriter(tmp_path / "ring.1.1", 1024).append(training_records()[:5])
    call("trace", "dump", tmp_path / "ring.1.1", "-o", tmp_path / "rank.npz")
    done = call("detect", "--json", tmp_path / "rank.npz", code=3)
    assert json.loads(done.stdout) == {"file": str(tmp_path / "rank.npz"), "error": "no data"}


def test_a_ring_itself_is_refused_with_the_mend(tmp_path):
    RingWriter(tmp_path / "ring.1.1", 1024).append(training_records()[:500])
    assert "greyhound trace dump" in call("detect", tmp_path / "ring.1.1", code=1).stderr


def test_what_is_no_ring_and_what_cannot_be_written_are_told(tmp_path):
    (tmp_path / "text").write_text("hello")
    assert "truncated" in call("trace", "dump", tmp_path / "text", "-o", tmp_path / "out", code=1).stderr
    assert "No such file" in call("trace", "dump", tmp_path / "absent", "-o", tmp_path / "out", code=1).stderr
    RingWriter(tmp_path / "ring.1.1", 1024).append(training_records()[:500])
    output = tmp_path / "absent" / "out"
    assert "can't be written: No such file" in call("trace", "dump", tmp_path / "ring.1.1", "-o", output, code=1).stderr
    assert not (tmp_path / "out").exists()
