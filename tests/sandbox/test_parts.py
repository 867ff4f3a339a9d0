"""Parts of the sandbox without daemons."""

import os
import subprocess
import sys

import pytest

from greyhound.sandbox import layout, listeners, ports, processes, programs, state, teardown
from greyhound.sandbox.cluster import Sandbox
from greyhound.sandbox.errors import SandboxError
from greyhound.sandbox.layout import Layout

LISTEN = "import socket,sys; s=socket.create_server((sys.argv[1],0)); print(s.getsockname()[1], flush=True); input()"


@pytest.mark.parametrize(("address", "found"), [("0.0.0.0", 1), ("127.0.0.1", 0), ("127.0.0.53", 0)])
def test_foreign_listeners(address, found):
    with subprocess.Popen(
        [sys.executable, "-c", LISTEN, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as daemon:
        port = daemon.stdout.readline().strip()
        seen = listeners.foreign([daemon.pid])
        daemon.communicate("\n")
    assert len(seen) == found
    assert all(f"{address}:{port} (pid {daemon.pid})" == one for one in seen)


@pytest.mark.parametrize("name", ["", "A", "a/b", "..", "1a", "x" * 21, "a b"])
def test_bad_names(name):
    with pytest.raises(SandboxError, match="sandbox name"):
        Layout(name)


def test_socket_paths_fit():
    longest = Layout("x" * 20, uid=2**32 - 2)
    assert max(len(str(longest.munge_socket)), len(str(longest.database_socket))) < 100


@pytest.mark.parametrize(("nodes", "gpus"), [(0, 2), (65, 2), (4, -1), (4, 17)])
def test_bad_sizes(nodes, gpus):
    with pytest.raises(SandboxError, match="give"):
        Sandbox.up("unused", nodes=nodes, gpus_per_node=gpus)


def test_missing_programs_name_their_packages(monkeypatch):
    monkeypatch.setattr(
        programs, "find", lambda name: None if name in ("slurmdbd", "redis-server") else f"/usr/sbin/{name}"
    )
    with pytest.raises(SandboxError, match=r"needs slurmdbd, redis-server.*apt-get install .* redis-server slurmdbd"):
        programs.require(redis=True)
    with pytest.raises(SandboxError) as caught:
        programs.require(redis=False)
    assert "redis" not in str(caught.value)


def test_slurm_release(tmp_path):
    fake = tmp_path / "slurmctld"
    fake.write_text("#!/bin/sh\necho slurm-wlm 24.11.5\n")
    fake.chmod(0o755)
    assert programs.slurm_release(str(fake)) == (24, 11)
    fake.write_text("#!/bin/sh\necho nonsense\n")
    with pytest.raises(SandboxError, match="nonsense"):
        programs.slurm_release(str(fake))


def test_ports_avoid_those_of_others():
    other = state.State("a", "", "", "", "", [], 0, 10_001, {"x": 10_000})
    monopoly = {f"p{port}": port for port in range(10_001, 19_999)}
    chosen = ports.choose(["one"], [other, state.State("b", "", "", "", "", [], 0, 20_001, monopoly)])
    assert chosen == {"one": 19_999}
    assert ports.choose_first_job_id([other]) != 10_001


def test_the_lock_excludes_and_ends_with_its_holder():
    with ports.lock("test"), pytest.raises(SandboxError, match="at work"), ports.lock("test", timeout_s=0.1):
        pass
    with ports.lock("test", timeout_s=0.1):
        pass


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"version": 99}', '{"version": 1, "processes": [{"pid": 1}]}', "\x00"]
)
def test_a_damaged_state_counts_as_crashed(tmp_path, text):
    path = tmp_path / "state.json"
    path.write_text(text)
    assert state.load(path) is None


def test_a_reused_pid_is_not_taken_for_the_daemon():
    ticks = processes.start_ticks(os.getpid())
    assert processes.alive(state.Recorded("x", os.getpid(), ticks))
    assert not processes.alive(state.Recorded("x", os.getpid(), ticks - 1))
    assert not processes.alive(state.Recorded("x", 2**22 + 1, ticks))


def test_a_directory_of_somebody_else_is_not_touched(tmp_path, monkeypatch):
    monkeypatch.setattr(layout, "BASE", tmp_path)
    target = tmp_path / "precious"
    target.mkdir()
    Layout("evil").directory.symlink_to(target)
    with pytest.raises(SandboxError, match="not touched"):
        teardown.down(Layout("evil"), lambda _: None)
    assert target.is_dir()
