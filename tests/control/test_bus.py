"""The bus against a real redis-server: ours, foreign ones, none."""

import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from greyhound.control import redis_server, rendezvous
from greyhound.control.bus import BusError, MemoryBus, RedisBus
from greyhound.control.link import KEPT, Finder, Link
from greyhound.control.messages import Bye, Hello, IterationBatch, decode
from greyhound.control.plan_message import PluginWord
from greyhound.control.redis_server import Site

PREFIX = "gh:0.1.0.0:"
HOST = "127.0.0.1"
CONNECTED = """
import socket, sys, time
kept = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
kept.sendall(b"PING\\r\\n")
kept.recv(1)
print("there", flush=True)
time.sleep(60)
"""


@pytest.fixture
def token():
    return os.urandom(32)


@pytest.fixture
def server(token, tmp_path):
    started = redis_server.start(token, Site(HOST, PREFIX, tmp_path))
    yield started
    started.stop()


def connect(token, server, **changed):
    return RedisBus(HOST, replace(rendezvous.candidate(token, server.k), **changed), PREFIX)


def foreign_server(port, password="other"):
    config = f'bind {HOST}\nport {port}\nrequirepass {password}\nsave ""\n'
    process = subprocess.Popen(["redis-server", "-"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    process.stdin.write(config.encode())
    process.stdin.close()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex((HOST, port)) == 0:
                return process
        time.sleep(0.02)
    raise AssertionError("foreign server didn't come up")


@pytest.mark.parametrize("kind", ["memory", "redis"])
def test_messages_arrive_in_order_and_once(kind, request, token):
    if kind == "memory":
        sender = MemoryBus()
        receiver = MemoryBus(sender)
    else:
        server = request.getfixturevalue("server")
        sender, receiver = connect(token, server), server.bus
    assert receiver.read("up") == []
    for number in range(5):
        sender.publish("up", f"m{number}")
    sender.publish("down", "other")
    assert receiver.read("up", 0.2) == [f"m{number}" for number in range(5)]
    assert receiver.read("up", 0.01) == []
    assert not sender.master_alive()
    receiver.beat()
    assert sender.master_alive()
    sender.close()


def test_server_is_private(token, server):
    command = Path(f"/proc/{server.process.pid}/cmdline").read_bytes()
    assert rendezvous.password(token, 0).encode() not in command
    with pytest.raises(BusError, match="foreign"):
        connect(token, server, password="wrong")
    with pytest.raises(BusError, match="identity"):
        connect(token, server, identity="0" * 64)
    with pytest.raises(BusError, match="greeting"):
        connect(token, server, greeting="0" * 64)
    listening = psutil.Process(server.process.pid).net_connections("inet")
    assert [tuple(one.laddr) for one in listening if one.status == "LISTEN"] == [(HOST, server.port)]


def test_port_of_a_foreign_server_is_passed_over(token, tmp_path):
    first = rendezvous.port(token, 0)
    foreign = foreign_server(first)
    try:
        ours = redis_server.start(token, Site(HOST, PREFIX, tmp_path))
        try:
            assert ours.port == rendezvous.port(token, 1)
            finder = Finder(token, PREFIX, lambda: HOST)
            assert finder.try_one()[0] is None
            bus, _ = finder.try_one()
            bus.publish("up", "hello")
            assert ours.bus.read("up", 0.2) == ["hello"]
            bus.close()
        finally:
            ours.stop()
    finally:
        foreign.kill()
        foreign.wait()


def test_server_that_knows_the_password_but_not_us_is_refused(token, tmp_path):
    foreign = foreign_server(rendezvous.port(token, 0), rendezvous.password(token, 0))
    try:
        ours = redis_server.start(token, Site(HOST, PREFIX, tmp_path))
        ours.stop()
        assert ours.port == rendezvous.port(token, 1)
    finally:
        foreign.kill()
        foreign.wait()


def test_missing_redis_names_the_mend(token, tmp_path):
    with pytest.raises(redis_server.RedisUnavailableError, match="apt install redis-server"):
        redis_server.start(token, Site(HOST, PREFIX, tmp_path), "/nonexistent/redis-server")
    broken = tmp_path / "redis-server"
    broken.write_text("#!/bin/sh\necho cannot run here\nexit 1\n")
    broken.chmod(0o755)
    with pytest.raises(redis_server.RedisUnavailableError, match="cannot run here"):
        redis_server.start(token, Site(HOST, PREFIX, tmp_path), str(broken))


def test_killed_redis_is_an_error_not_a_hang(token, server):
    bus = connect(token, server)
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.wait()
    for use in (lambda: bus.publish("up", "x"), lambda: bus.read("up", 0.1), bus.master_alive):
        with pytest.raises(BusError):
            use()


def test_redis_dies_with_its_parent(token, tmp_path):
    program = (
        "import os, sys; from pathlib import Path; from greyhound.control import redis_server\n"
        f"site = redis_server.Site('{HOST}', '{PREFIX}', Path('{tmp_path}'))\n"
        f"s = redis_server.start(bytes.fromhex('{token.hex()}'), site)\n"
        "print(s.process.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30).stdout
    pid = int(out)
    deadline = time.monotonic() + 10
    while os.path.exists(f"/proc/{pid}/exe") and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not os.path.exists(f"/proc/{pid}/exe")


def others(server, wanted):
    """Redis notices at its next turn that somebody came or went."""
    end_s = time.monotonic() + 10
    while server.bus.others() != wanted:
        assert time.monotonic() < end_s, f"{server.bus.others()} others, not {wanted}"
    return True


def test_the_master_knows_who_is_still_connected(token, server):
    assert others(server, 0)
    link = subprocess.Popen([sys.executable, "-c", CONNECTED, str(server.port)], stdout=subprocess.PIPE)
    try:
        assert link.stdout.readline() == b"there\n"
        assert others(server, 1)
    finally:
        link.kill()
        link.communicate()
    assert others(server, 0)


def test_a_bus_that_was_closed_holds_no_connection(token, server):
    bus = connect(token, server)
    assert others(server, 1)
    bus.close()
    assert others(server, 0)


class BrokenBus(MemoryBus):
    broken = False

    def publish(self, stream, text):
        if self.broken:
            raise BusError("gone")
        super().publish(stream, text)


def test_link_keeps_reports_until_the_master_is_back():
    bus = BrokenBus()
    there = []
    link = Link(3, Hello("n3", "host", 1), lambda: (bus, False) if there else (None, True))
    link.step(0.0)
    link.send(Bye("kept"))
    for _ in range(KEPT):
        link.send(IterationBatch("waiting"))
        link.send(PluginWord([]))
    assert not link.connected
    there.append(True)
    link.step(0.1)
    assert not link.connected  # backing off
    link.step(5.0)
    messages = [decode(text) for text in bus.read("up")]
    assert [type(message.data) for message in messages] == [Hello, Bye]
    assert [message.seq for message in messages] == [1, 2]
    bus.broken = True
    link.send(Bye("again"))
    assert not link.connected
    bus.broken = False
    link.step(6.0)
    assert [type(decode(text).data) for text in bus.read("up")] == [Hello, Bye]
