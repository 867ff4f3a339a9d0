"""What our processes may take, and that a limit that is reached costs the watch and not the job."""

import os
import secrets
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from greyhound.config import Settings, native_dir
from greyhound.control import events as events_module
from greyhound.control import local, redis_server
from greyhound.control.bus import BusError
from greyhound.control.events import EventLog, read_events
from greyhound.control.limits import ANALYZER_BYTES, MASTER_BYTES, MIB, REDIS_BYTES, Cores, spare_cores
from greyhound.control.names import StepName
from greyhound.control.status import StatusWriter
from tests.control.helpers import child_with, launch, ring_program, wait_for, wait_for_status

cores = st.sets(st.integers(0, 15), max_size=8)


@given(cores, st.lists(cores, max_size=4))
def test_spare_cores_are_ours_and_nobody_s(ours, ranks):
    spare = spare_cores(ours, ranks)
    assert spare <= ours
    assert all(not spare & rank for rank in ranks)
    assert all(core in spare or any(core in rank for rank in ranks) for core in ours)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core")
def test_process_and_its_children_leave_the_cores_of_the_ranks():
    ours = os.sched_getaffinity(0)
    rank_core = min(ours)
    rank = subprocess.Popen(["sleep", "60"], preexec_fn=lambda: os.sched_setaffinity(0, {rank_core}))
    unbound = subprocess.Popen(["sleep", "60"])
    script = (
        "import os, subprocess, sys; from greyhound.control.limits import Cores; "
        "child = subprocess.Popen(['sleep', '60']); cores = Cores(); cores.avoid([int(sys.argv[1])]); "
        "print(*os.sched_getaffinity(0)); print(*os.sched_getaffinity(child.pid)); child.kill()"
    )
    try:
        for pid, expected in ((rank.pid, ours - {rank_core}), (unbound.pid, ours)):
            done = subprocess.run([sys.executable, "-c", script, str(pid)], capture_output=True, text=True, timeout=60)
            assert [{int(core) for core in line.split()} for line in done.stdout.splitlines()] == [expected] * 2
    finally:
        for process in (rank, unbound):
            process.kill()
            process.wait()


def test_cores_of_a_process_that_is_gone_are_nobody_s():
    before = os.sched_getaffinity(0)
    gone = subprocess.Popen(["true"])
    gone.wait()
    Cores().avoid([gone.pid])
    assert os.sched_getaffinity(0) == before


def test_each_process_has_its_limit(tmp_path):
    job = launch(tmp_path, "-n", 1, "--", *ring_program(400, 0.05, "--until", tmp_path / "stop"))
    try:
        wait_for_status(job.pid, "tracking")
        for program, most_bytes in (
            ("greyhound.control.node", ANALYZER_BYTES),
            ("greyhound.control.master", MASTER_BYTES),
            ("redis-server", REDIS_BYTES),
        ):
            process = child_with(job, program)
            assert process.rlimit(psutil.RLIMIT_AS) == (most_bytes, most_bytes)
            assert process.memory_info().vms < most_bytes / 2
            assert process.memory_info().rss < 200 * MIB
    finally:
        (tmp_path / "stop").touch()
        job.communicate(timeout=60)


def limited(tmp_path, program, kib):
    """A program that gets no more address space than so much."""
    script = tmp_path / f"limited-{Path(program).name}"
    script.write_text(f'#!/bin/sh\nulimit -v {kib}\nexec {program} "$@"\n')
    script.chmod(0o755)
    return str(script)


@pytest.mark.parametrize(("what", "kib"), [("node", 120_000), ("redis", 20_000)])
def test_limit_that_is_reached_leaves_the_job_unmonitored_and_unharmed(tmp_path, monkeypatch, what, kib):
    said = []
    settings = Settings(record_dir=str(tmp_path / "records"))
    if what == "node":
        monkeypatch.setattr(local.sys, "executable", limited(tmp_path, sys.executable, kib))
    else:
        settings = Settings(record_dir=settings.record_dir, redis_server=limited(tmp_path, "redis-server", kib))
    monitor = local.Monitor(settings, 1, native_dir(), said.append)
    job = None
    try:
        environment = {**os.environ, **monitor.start(), "LD_PRELOAD": ""}
        monkeypatch.undo()
        job = subprocess.Popen(ring_program(4000, 0.05, "--until", tmp_path / "stop"), env=environment)
        wait_for("the line", lambda: monitor.round() or any("unmonitored" in line for line in said))
        assert job.poll() is None
    finally:
        (tmp_path / "stop").touch()
        code = job.wait(60) if job else None
        monitor.stop()
    assert code == 0, said


def test_full_redis_refuses_and_is_heard_of(tmp_path, monkeypatch):
    monkeypatch.setattr(redis_server, "MAXMEMORY", "3mb")
    site = redis_server.Site("127.0.0.1", "gh:test:", tmp_path)
    server = redis_server.start(secrets.token_bytes(32), site)
    try:
        with pytest.raises(BusError, match="maxmemory"):
            for _ in range(10_000):
                server.bus.publish("up", "x" * 5000)
        assert len(server.bus.read("up")) > 50  # nothing of what was taken was thrown away
    finally:
        server.stop()


def test_live_status_each_second_and_the_copy_on_a_change_and_every_half_minute(tmp_path, monkeypatch):
    live, record = tmp_path / "live.json", tmp_path / "record.json"
    writer = StatusWriter(live, record)
    written = {live: 0, record: 0}
    monkeypatch.setattr(writer, "_put", lambda path, text: written.update({path: written[path] + 1}))
    for tenth in range(3000):  # five minutes in rounds of 0.1 s, two changes of state
        state = "suspect" if 1000 <= tenth < 1200 else "tracking"
        writer.update({"state": state, "iteration": tenth}, 100 + tenth / 10)
    assert 298 <= written[live] <= 304
    assert 10 <= written[record] <= 13


def test_event_log_of_weeks_is_bounded_and_still_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(events_module, "MOST_BYTES", 20_000)
    log = EventLog(tmp_path / "events.jsonl", StepName("7", "0", 0))
    for number in range(1000):
        log.append("waiting", 1000.0 + number, {"reason": "x" * 50})
    assert (tmp_path / "events.jsonl").stat().st_size < 21_000
    assert "no more events" in log.trouble
    log.append("end", 5000.0, {"reason": "the step ended"})
    assert [event["kind"] for event in read_events(tmp_path / "events.jsonl")][-1] == "end"
