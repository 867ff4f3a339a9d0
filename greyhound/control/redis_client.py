"""redis-py with two additions: a deadline for all of a call, and a server that proves itself at every connect.

redis-py's time-outs hold for one read each, so a server that sends a byte now and then would hold us for ever; and it
connects again by itself, to whoever listens by then.
"""

import contextlib
import hmac
import socket
import time
from dataclasses import dataclass, field
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.connection import Connection, ConnectionPool, UnixDomainSocketConnection
from redis.retry import Retry

from greyhound.control.rendezvous import USER


class Deadline:
    """The moment by which the call at hand must be over."""

    def __init__(self) -> None:
        self._until_s = 0.0

    def start(self, limit_s: float) -> None:
        """Begin a call."""
        self._until_s = time.monotonic() + limit_s

    def left_s(self) -> float:
        """Seconds left, more than 0; TimeoutError where there are none."""
        left_s = self._until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("no whole answer in time")
        return left_s


class BoundedSocket(socket.socket):
    """A socket whose reads and writes end at a deadline, however many there are."""

    deadline: Deadline

    def _bound(self) -> float | None:
        old_s = self.gettimeout()
        if old_s != 0:
            left_s = self.deadline.left_s()
            self.settimeout(left_s if old_s is None else min(left_s, old_s))
        return old_s

    def recv(self, *args: Any) -> bytes:
        """See socket."""
        old_s = self._bound()
        try:
            return super().recv(*args)
        finally:
            self.settimeout(old_s)

    def recv_into(self, *args: Any) -> int:
        """See socket."""
        old_s = self._bound()
        try:
            return super().recv_into(*args)
        finally:
            self.settimeout(old_s)

    def sendall(self, *args: Any) -> None:
        """See socket."""
        old_s = self._bound()
        try:
            super().sendall(*args)
        finally:
            self.settimeout(old_s)


def _bounded(plain: socket.socket, deadline: Deadline) -> BoundedSocket:
    timeout_s = plain.gettimeout()
    bounded = BoundedSocket(plain.family, plain.type, plain.proto, plain.detach())
    bounded.settimeout(timeout_s)
    bounded.deadline = deadline
    return bounded


class ForeignServerError(redis.exceptions.ConnectionError):
    """Somebody else's server; the text says by what we know."""


@dataclass(frozen=True)
class Proof:
    """What the server must show before it is sent the password, and what after that."""

    prefix: str
    greeting: str = field(repr=False)
    identity: str = field(repr=False)


def _receive(sock: BoundedSocket, count: int) -> bytes:
    """`count` bytes, fewer where the server says no more."""
    found = b""
    while len(found) < count and (got := sock.recv(count - len(found))):
        found += got
    return found


def _check_greeting(sock: BoundedSocket, proof: Proof) -> None:
    """GET before any log-in. The text is compared as a whole, so that nobody can guess it bit by bit."""
    words = [b"GET", proof.prefix.encode() + b"greeting"]
    sock.sendall(b"*2\r\n" + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))
    length, text = b"$%d\r\n" % len(proof.greeting), proof.greeting.encode() + b"\r\n"
    if _receive(sock, len(length)) != length or not hmac.compare_digest(_receive(sock, len(text)), text):
        raise ForeignServerError("a foreign server, it doesn't show this step's greeting")


class TcpConnection(Connection):
    """To the step's server over the network: greeting, log-in, identity, in this order, at every connect."""

    def __init__(self, *, deadline: Deadline, proof: Proof, **kwargs: Any) -> None:
        self._deadline = deadline
        self._proof = proof
        super().__init__(redis_connect_func=self._log_in, **kwargs)  # type: ignore[no-untyped-call]

    def _connect(self) -> BoundedSocket:
        with contextlib.ExitStack() as on_failure:
            sock = _bounded(super()._connect(), self._deadline)  # type: ignore[no-untyped-call]
            on_failure.callback(sock.close)
            _check_greeting(sock, self._proof)
            on_failure.pop_all()
        return sock

    def _log_in(self, connection: Any) -> None:
        self.on_connect()  # type: ignore[no-untyped-call]
        self.send_command("GET", self._proof.prefix + "identity")  # type: ignore[no-untyped-call]
        if self.read_response() != self._proof.identity:
            raise ForeignServerError("a foreign server, it doesn't hold this step's identity")


class LocalConnection(UnixDomainSocketConnection):
    """Over the socket in the step directory, which nobody else can enter."""

    def __init__(self, *, deadline: Deadline, **kwargs: Any) -> None:
        self._deadline = deadline
        super().__init__(**kwargs)  # type: ignore[no-untyped-call]

    def _connect(self) -> BoundedSocket:
        return _bounded(super()._connect(), self._deadline)  # type: ignore[no-untyped-call]


def client(connection_class: type[Any], timeout_s: float, password: str, **kwargs: Any) -> Any:
    """A client of one connection class above; `kwargs` are the class's own."""
    pool = ConnectionPool(
        connection_class=connection_class,
        username=USER,
        password=password,
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        decode_responses=True,
        encoding_errors="replace",
        retry=Retry(NoBackoff(), 0),
        protocol=2,
        **kwargs,
    )
    return redis.Redis(connection_pool=pool)
