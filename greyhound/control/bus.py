"""The way between analyzers and master: two streams, `up` and `down`, and a heartbeat of the master.

`RedisBus` is the real one, `MemoryBus` serves simulation and tests. A bus never blocks longer than its time-out.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from greyhound.control.rendezvous import Candidate

STREAM_MAXLEN = 10_000
TIMEOUT_S = 0.5
HEARTBEAT_EXPIRY_MS = 3_000


class BusError(ConnectionError):
    """The other side can't be reached or refuses us; the text says which."""


class Bus(Protocol):
    """What analyzers and master need of a bus; every method raises BusError when the other side is gone."""

    def publish(self, stream: str, text: str) -> None:
        """Append one message to the stream `up` or `down`."""

    def read(self, stream: str, wait_s: float = 0.0) -> list[str]:
        """Messages since the last read of this stream by this object, oldest first; waits at most `wait_s`."""

    def others(self) -> int:
        """How many other connections the server has now: one a living analyzer (for the master)."""

    def beat(self) -> None:
        """Say that the master lives; holds for HEARTBEAT_EXPIRY_MS."""

    def master_alive(self) -> bool:
        """Whether the master's last beat still holds."""

    def close(self) -> None:
        """Let go of the connection."""


class MemoryBus:
    """A bus inside one process. `MemoryBus(other)` shares the streams of `other` with cursors of its own."""

    def __init__(self, other: "MemoryBus | None" = None) -> None:
        self._streams: dict[str, list[str]] = {} if other is None else other._streams
        self._beats: list[float] = [] if other is None else other._beats
        self._cursors: dict[str, int] = {}

    def publish(self, stream: str, text: str) -> None:
        """See Bus."""
        self._streams.setdefault(stream, []).append(text)

    def read(self, stream: str, wait_s: float = 0.0) -> list[str]:
        """See Bus; never waits."""
        start = self._cursors.get(stream, 0)
        found = self._streams.get(stream, [])[start:]
        self._cursors[stream] = start + len(found)
        return found

    def others(self) -> int:
        """See Bus; in one process nobody is lost."""
        return 1

    def beat(self) -> None:
        """See Bus."""
        self._beats[:] = [time.monotonic()]

    def master_alive(self) -> bool:
        """See Bus."""
        return bool(self._beats) and time.monotonic() - self._beats[0] < HEARTBEAT_EXPIRY_MS / 1000

    def close(self) -> None:
        """See Bus."""


# What redis-py lets through where an answer isn't of the kind that it expects.
NO_ANSWER_OF_REDIS = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)


class RedisBus:
    """A bus over the step's own Redis. Connecting checks that the server is ours, BusError otherwise.

    Each call, connecting included, is over after TIMEOUT_S, whatever the other side does.
    """

    def __init__(self, host: str, candidate: Candidate, prefix: str) -> None:
        """Over the network, for analyzers: the server proves itself before it is sent the password."""
        from greyhound.control.redis_client import Proof, TcpConnection

        proof = Proof(prefix, candidate.greeting, candidate.identity)
        self._open(f"Redis at {host}:{candidate.port}", prefix)
        self._connect(TcpConnection, candidate, host=host, port=candidate.port, proof=proof)

    @classmethod
    def local(cls, path: Path, candidate: Candidate, prefix: str) -> "RedisBus":
        """Over the socket in the step directory, for the master, which brings the proofs there."""
        from greyhound.control.redis_client import LocalConnection

        bus = cls.__new__(cls)
        bus._open(f"Redis at {path}", prefix)
        bus._connect(LocalConnection, candidate, path=str(path))
        return bus

    def _open(self, where: str, prefix: str) -> None:
        from greyhound.control.redis_client import Deadline

        self._where = where
        self._prefix = prefix
        self._cursors: dict[str, str] = {}
        self._deadline = Deadline()

    def _connect(self, connection_class: type[Any], candidate: Candidate, **kwargs: Any) -> None:
        from greyhound.control.redis_client import client

        self._client: Any = client(connection_class, TIMEOUT_S, candidate.password, deadline=self._deadline, **kwargs)
        try:
            with self._call():
                self._client.exists(self._prefix + "master")
        except BusError:
            self.close()
            raise

    @contextmanager
    def _call(self) -> Iterator[None]:
        """One exchange with the server: bounded, and every failure of it a BusError."""
        import redis

        self._deadline.start(TIMEOUT_S)
        try:
            yield
        except redis.exceptions.AuthenticationError:
            raise BusError(f"{self._where}: a foreign server, it refuses the step's password") from None
        except (redis.exceptions.RedisError, OSError) as error:
            raise BusError(f"{self._where}: {error}") from None
        except NO_ANSWER_OF_REDIS as error:
            raise BusError(f"{self._where}: no answer of Redis: {type(error).__name__}: {error}") from None

    def claim(self, candidate: Candidate) -> None:
        """Write what proves the server ours (the master, once)."""
        with self._call():
            self._client.set(self._prefix + "identity", candidate.identity)
            self._client.set(self._prefix + "greeting", candidate.greeting)

    def server_pid(self) -> int:
        """The server's process id."""
        with self._call():
            return int(self._client.info("server")["process_id"])

    def publish(self, stream: str, text: str) -> None:
        """See Bus."""
        with self._call():
            self._client.xadd(self._prefix + stream, {"m": text}, maxlen=STREAM_MAXLEN, approximate=True)

    def read(self, stream: str, wait_s: float = 0.0) -> list[str]:
        """See Bus; waits at most 0.4 s, so that the socket's own time-out stays an error."""
        key = self._prefix + stream
        block_ms = min(int(wait_s * 1000), int(TIMEOUT_S * 800)) or None
        with self._call():
            answer = self._client.xread({key: self._cursors.get(stream, "0")}, count=1000, block=block_ms)
            entries = answer[0][1] if answer else []
            texts = [fields["m"] for _, fields in entries if "m" in fields]
            if entries:
                self._cursors[stream] = entries[-1][0]
        return texts

    def others(self) -> int:
        """See Bus."""
        with self._call():
            return int(self._client.info("clients")["connected_clients"]) - 1

    def beat(self) -> None:
        """See Bus."""
        with self._call():
            self._client.set(self._prefix + "master", "1", px=HEARTBEAT_EXPIRY_MS)

    def master_alive(self) -> bool:
        """See Bus."""
        with self._call():
            return bool(self._client.exists(self._prefix + "master"))

    def close(self) -> None:
        """See Bus."""
        with suppress(OSError):
            self._client.connection_pool.disconnect()  # its close() leaves a pool that it was given alone
