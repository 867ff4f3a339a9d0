"""Listeners on the step's ports that aren't ours: they learn nothing, they can't play us, they hold nobody up."""

import os
import socket
import threading
import time
from pathlib import Path

import pytest

from greyhound.control import redis_server, rendezvous
from greyhound.control.bus import BusError, RedisBus
from greyhound.control.link import Finder
from greyhound.control.redis_server import Site

PREFIX = "gh:0.1.0.0:"
HOST = "127.0.0.1"


class Listener:
    """Answers each connection's data by `answer(connection, data)` and keeps all that it heard."""

    def __init__(self, port, answer):
        self.heard = b""
        self._answer = answer
        self._socket = socket.create_server((HOST, port))
        self._over = False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while not self._over:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        try:
            while data := connection.recv(65536):
                self.heard += data
                self._answer(connection, data)
        except OSError:
            return
        finally:
            connection.close()

    def close(self):
        self._over = True
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@pytest.fixture
def token():
    return os.urandom(32)


@pytest.fixture
def listen():
    listeners = []

    def start(port, answer):
        listeners.append(Listener(port, answer))
        return listeners[-1]

    yield start
    for listener in listeners:
        listener.close()


def say_yes(connection, data):
    connection.sendall(b"+OK\r\n" * max(1, data.count(b"*")))


def secrets_of(token):
    kinds = (rendezvous.password, rendezvous.greeting, rendezvous.identity)
    return [secret(token, k).encode() for secret in kinds for k in range(rendezvous.TRIES)]


def test_a_listener_that_accepts_everything_learns_no_secret(token, tmp_path, listen):
    listener = listen(rendezvous.port(token, 0), say_yes)
    ours = redis_server.start(token, Site(HOST, PREFIX, tmp_path))
    try:
        finder = Finder(token, PREFIX, lambda: HOST)
        assert finder.try_one()[0] is None
        assert ours.k == 1
        finder.try_one()[0].close()
    finally:
        ours.stop()
    assert b"GET" in listener.heard
    assert [secret for secret in secrets_of(token) if secret in listener.heard] == []


def test_who_plays_back_the_greeting_gets_no_further(token, tmp_path, listen):
    """The greeting is there for everybody to read while our server lives; its port may be taken after that."""
    ours = redis_server.start(token, Site(HOST, PREFIX, tmp_path))
    candidate = rendezvous.candidate(token, 0)
    with socket.create_connection((HOST, ours.port), timeout=5) as stranger:
        key = f"{PREFIX}greeting"
        stranger.sendall(f"GET {key}\r\n".encode())
        stolen = stranger.recv(4096)
        assert candidate.greeting.encode() in stolen
        for word in (f"GET {PREFIX}identity", f"SET {key} x", f"XREAD STREAMS {PREFIX}up 0", "INFO", "PING"):
            stranger.sendall(f"{word}\r\n".encode())
            assert stranger.recv(4096).startswith((b"-NOPERM", b"-NOAUTH"))
    ours.stop()
    listener = listen(
        ours.port, lambda connection, data: connection.sendall(stolen if key.encode() in data else b"+OK\r\n")
    )
    with pytest.raises(BusError, match="identity"):
        RedisBus(HOST, candidate, PREFIX)
    assert candidate.identity.encode() not in listener.heard
    again = redis_server.start(token, Site(HOST, PREFIX, tmp_path), first=ours.k + 1)
    again.stop()
    assert again.k == 1


def test_a_lost_connection_is_not_taken_up_with_a_stranger(token, tmp_path, listen):
    ours = redis_server.start(token, Site(HOST, PREFIX, tmp_path))
    bus = RedisBus(HOST, rendezvous.candidate(token, 0), PREFIX)
    ours.stop()
    listener = listen(ours.port, say_yes)
    with pytest.raises(BusError):
        bus.publish("up", "for our own server only")
    with pytest.raises(BusError):
        bus.publish("up", "for our own server only")
    assert b"only" not in listener.heard


@pytest.mark.parametrize(
    "answer",
    [b"+\xff\xfe\r\n", b"$64\r\n" + b"\xff" * 64 + b"\r\n", b"$abc\r\n", b"*1\r\n" * 5000, b"$99999999999\r\n", b"\0"],
)
def test_rubbish_is_a_foreign_server(token, listen, answer):
    listen(rendezvous.port(token, 0), lambda connection, data: connection.sendall(answer))
    with pytest.raises(BusError):
        RedisBus(HOST, rendezvous.candidate(token, 0), PREFIX)


@pytest.mark.parametrize(
    "answer", [b"+\xff\xfe\r\n", b"*1\r\n" * 5000, b"*1\r\n*3\r\n$1\r\na\r\n:1\r\n:2\r\n", b":1\r\n"]
)
def test_rubbish_after_the_log_in_is_a_bus_error(token, listen, answer):
    candidate = rendezvous.candidate(token, 0)

    def play(connection, data):
        for key, text in (("greeting", candidate.greeting), ("identity", candidate.identity)):
            if f"{PREFIX}{key}".encode() in data:
                connection.sendall(f"$64\r\n{text}\r\n".encode())
                return
        connection.sendall(answer if b"XREAD" in data else b":1\r\n" if b"EXISTS" in data else b"+OK\r\n")

    listen(candidate.port, play)
    bus = RedisBus(HOST, candidate, PREFIX)
    with pytest.raises(BusError):
        bus.read("up")


def drip(text, over):
    """Sends a byte now and then; sets `over` before the last one."""

    def answer(connection, data):
        for sent, byte in enumerate(text, 1):
            time.sleep(0.1)
            if sent == len(text):
                over.set()
            connection.sendall(bytes([byte]))

    return answer


def test_a_tarpit_is_left_in_time(token, listen):
    """It would take 6.4 s to be read to its end."""
    candidate = rendezvous.candidate(token, 0)
    over = threading.Event()
    listen(candidate.port, drip(f"$64\r\n{candidate.greeting}\r\n".encode(), over))
    with pytest.raises(BusError, match=r"in time|Timeout"):
        RedisBus(HOST, candidate, PREFIX)
    assert not over.is_set()


def test_a_server_that_turns_into_a_tarpit_is_left_in_time(token, listen):
    candidate = rendezvous.candidate(token, 0)
    over = threading.Event()

    def play(connection, data):
        for key, text in (("greeting", candidate.greeting), ("identity", candidate.identity)):
            if f"{PREFIX}{key}".encode() in data:
                connection.sendall(f"$64\r\n{text}\r\n".encode())
                return
        if b"XREAD" in data:
            drip(b"$60\r\n" + b"x" * 60 + b"\r\n", over)(connection, data)
        connection.sendall(b":1\r\n" if b"EXISTS" in data else b"+OK\r\n")

    listen(candidate.port, play)
    bus = RedisBus(HOST, candidate, PREFIX)
    with pytest.raises(BusError):
        bus.read("up", 0.2)
    assert not over.is_set()


def test_start_gives_up_when_told_to_stop(token, tmp_path):
    stubborn = tmp_path / "redis-server"
    stubborn.write_text("#!/bin/sh\nexec sleep 60\n")
    stubborn.chmod(0o755)
    rounds = []

    def stopped():
        rounds.append(1)
        return len(rounds) > 3

    with pytest.raises(redis_server.RedisUnavailableError, match="told to stop"):
        redis_server.start(token, Site(HOST, PREFIX, Path(tmp_path), stopped), str(stubborn))
