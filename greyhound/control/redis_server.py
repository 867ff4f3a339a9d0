"""The step's own redis-server: a child of the master, bound to one address, nothing on disk, password on stdin."""

import contextlib
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from greyhound.control import child, rendezvous
from greyhound.control.bus import BusError, RedisBus

MAXMEMORY = "128mb"
START_TIMEOUT_S = 5.0


class RedisUnavailableError(RuntimeError):
    """No Redis of ours could be started; the text says why and what mends it."""


def find_server(configured: str) -> str:
    """Absolute path of redis-server; RedisUnavailableError names the mend where there is none."""
    found = shutil.which(configured) or shutil.which(configured, path="/usr/bin:/usr/local/bin:/usr/sbin:/opt/bin")
    if found is None:
        raise RedisUnavailableError(
            f"{configured!r} not found or not executable: install it (Debian: apt install redis-server) "
            "or name it with redis_server=PATH in plugstack.conf or /etc/greyhound/greyhound.toml"
        )
    return found


def configuration(address: str, port: int, password: str, directory: Path) -> str:
    """redis.conf for the server (redis.io/docs/management/config): one address, a password, no persistence."""
    return "\n".join(
        [
            f"bind {address}",
            f"port {port}",
            "protected-mode yes",
            f"requirepass {password}",
            f'dir "{directory}"',
            'save ""',
            "appendonly no",
            f"maxmemory {MAXMEMORY}",
            "maxmemory-policy noeviction",
            "maxclients 4096",
            "databases 1",
            "daemonize no",
            "loglevel warning",
            "",
        ]
    )


class RedisServer:
    """A running server that was proven to be ours, and the master's connection to it."""

    def __init__(self, process: subprocess.Popen[bytes], bus: RedisBus, port: int) -> None:
        self.process = process
        self.bus = bus
        self.port = port

    def stop(self, grace_s: float = 0.5) -> None:
        """End the server; it keeps nothing."""
        self.bus.close()
        child.end(self.process, grace_s)


def _spawn(binary: str, config: str, log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as out:
        process = subprocess.Popen(
            [binary, "-"],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.STDOUT,
            preexec_fn=child.die_with_parent(),
        )
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process.stdin as stdin:
        stdin.write(config.encode())
    return process


def _await_ready(process: subprocess.Popen[bytes], connect: Callable[[], RedisBus], identity: str) -> RedisBus | None:
    """The bus once the server answers as ours; None if it ended or a foreign server holds the port."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            bus = connect()
            if bus.claim(identity) == process.pid:
                return bus
            bus.close()
        except BusError:
            time.sleep(0.02)
    return None


def _last_line(log: Path) -> str:
    with contextlib.suppress(OSError):
        lines = log.read_text(errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else ""
    return ""


def start(token: bytes, address: str, prefix: str, directory: Path, configured: str = "redis-server") -> RedisServer:
    """Start a server on the first free port of the step's list; RedisUnavailableError if none works."""
    binary = find_server(configured)
    identity = rendezvous.identity(token)
    log = directory / "redis.log"
    why = ""
    for k in range(rendezvous.TRIES):
        port, password = rendezvous.port(token, k), rendezvous.password(token, k)
        try:
            process = _spawn(binary, configuration(address, port, password, directory), log)
        except OSError as error:
            raise RedisUnavailableError(f"{binary}: can't be started: {error}") from None

        def connect(port: int = port, password: str = password) -> RedisBus:
            return RedisBus(address, port, password, prefix, None)

        bus = _await_ready(process, connect, identity)
        if bus is not None:
            return RedisServer(process, bus, port)
        child.end(process, 0.5)
        why = _last_line(log) or why
    raise RedisUnavailableError(
        f"redis-server could not listen on {address} at any of the step's {rendezvous.TRIES} ports; last words: {why}"
    )
