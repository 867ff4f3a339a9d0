"""The way between analyzers and master: two streams, `up` and `down`, and a heartbeat of the master.

`RedisBus` is the real one, `MemoryBus` serves simulation and tests. A bus never blocks longer than its time-out.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

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

    def beat(self) -> None:
        """See Bus."""
        self._beats[:] = [time.monotonic()]

    def master_alive(self) -> bool:
        """See Bus."""
        return bool(self._beats) and time.monotonic() - self._beats[0] < HEARTBEAT_EXPIRY_MS / 1000

    def close(self) -> None:
        """See Bus."""


@contextmanager
def _redis_errors(where: str) -> Iterator[None]:
    import redis

    try:
        yield
    except redis.exceptions.AuthenticationError:
        raise BusError(f"{where}: a foreign server, it refuses the step's password") from None
    except (redis.exceptions.RedisError, OSError) as error:
        raise BusError(f"{where}: {error}") from None


class RedisBus:
    """A bus over the step's own Redis.

    Connecting checks that the server is ours: it accepts the password and, unless `identity` is None (the master
    before it has written it), holds the step's identity. BusError otherwise.
    """

    def __init__(self, host: str, port: int, password: str, prefix: str, identity: str | None) -> None:
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        self._where = f"Redis at {host}:{port}"
        self._prefix = prefix
        self._cursors: dict[str, str] = {}
        self._client: Any = redis.Redis(
            host=host,
            port=port,
            password=password,
            socket_timeout=TIMEOUT_S,
            socket_connect_timeout=TIMEOUT_S,
            decode_responses=True,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
        )
        try:
            with _redis_errors(self._where):
                self._client.ping()
                if identity is not None and self._client.get(prefix + "identity") != identity:
                    raise BusError(f"{self._where}: a foreign server, it doesn't hold this step's identity")
        except BusError:
            self.close()
            raise

    def claim(self, identity: str) -> int:
        """Write the step's identity (the master, once); returns the server's process id."""
        with _redis_errors(self._where):
            self._client.set(self._prefix + "identity", identity)
            return int(self._client.info("server")["process_id"])

    def server_pid(self) -> int:
        """The server's process id."""
        with _redis_errors(self._where):
            return int(self._client.info("server")["process_id"])

    def publish(self, stream: str, text: str) -> None:
        """See Bus."""
        with _redis_errors(self._where):
            self._client.xadd(self._prefix + stream, {"m": text}, maxlen=STREAM_MAXLEN, approximate=True)

    def read(self, stream: str, wait_s: float = 0.0) -> list[str]:
        """See Bus; waits at most 0.4 s, so that the socket's own time-out stays an error."""
        key = self._prefix + stream
        block_ms = min(int(wait_s * 1000), int(TIMEOUT_S * 800)) or None
        with _redis_errors(self._where):
            answer = self._client.xread({key: self._cursors.get(stream, "0")}, count=1000, block=block_ms)
        entries = answer[0][1] if answer else []
        if entries:
            self._cursors[stream] = entries[-1][0]
        return [fields["m"] for _, fields in entries if "m" in fields]

    def beat(self) -> None:
        """See Bus."""
        with _redis_errors(self._where):
            self._client.set(self._prefix + "master", "1", px=HEARTBEAT_EXPIRY_MS)

    def master_alive(self) -> bool:
        """See Bus."""
        with _redis_errors(self._where):
            return bool(self._client.exists(self._prefix + "master"))

    def close(self) -> None:
        """See Bus."""
        import contextlib

        with contextlib.suppress(OSError):
            self._client.close()
