"""The step's own redis-server: a child of the master, bound to one address, nothing on disk, secrets on stdin."""

import contextlib
import hashlib
import logging
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from greyhound.control import child, limits, rendezvous
from greyhound.control.bus import BusError, RedisBus
from greyhound.control.rendezvous import USER, Candidate

MAXMEMORY = "128mb"
START_TIMEOUT_S = 5.0
SOCKET = "redis.sock"
COMMANDS = "+get +set +exists +xadd +xread +info"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Site:
    """Where a server of the step lives: address to listen on, prefix of its keys, the step directory."""

    address: str
    prefix: str
    directory: Path
    stopped: Callable[[], bool] = lambda: False


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


def configuration(address: str, candidate: Candidate, prefix: str, directory: Path) -> str:
    """redis.conf for the server (redis.io/docs/management/config, .../security/acl): nothing is kept on disk.

    Whoever isn't logged in can read the greeting and nothing else; that replaces protected-mode.
    """
    password = hashlib.sha256(candidate.password.encode()).hexdigest()
    return "\n".join(
        [
            f"bind {address}",
            f"port {candidate.port}",
            f'unixsocket "{directory / SOCKET}"',
            "unixsocketperm 700",
            "protected-mode no",
            f"user default on nopass resetkeys ~{prefix}greeting -@all +get",
            f"user {USER} on #{password} resetkeys ~{prefix}* -@all {COMMANDS}",
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

    def __init__(self, process: subprocess.Popen[bytes], bus: RedisBus, candidate: Candidate) -> None:
        self.process = process
        self.bus = bus
        self.k = candidate.k
        self.port = candidate.port

    def stop(self) -> None:
        """End the server; it keeps nothing."""
        self.bus.close()
        child.kill(self.process)


def _spawn(binary: str, config: str, log: Path) -> subprocess.Popen[bytes]:
    die = child.die_with_parent(blocked=child.SERVERS_OWN)

    def preexec() -> None:
        die()
        limits.cap_memory(limits.REDIS_BYTES)

    with log.open("wb") as out:
        process = subprocess.Popen(
            [binary, "-"],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.STDOUT,
            preexec_fn=preexec,
        )
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process.stdin as stdin:
        stdin.write(config.encode())
    return process


def _prove(process: subprocess.Popen[bytes], site: Site, candidate: Candidate) -> RedisBus | None:
    """The master's bus if our child answers on the socket in our directory and, with its proofs, on the port."""
    bus = RedisBus.local(site.directory / SOCKET, candidate, site.prefix)
    try:
        if bus.server_pid() == process.pid:
            bus.claim(candidate)
            RedisBus(site.address, candidate, site.prefix).close()
            return bus
    except BusError:
        bus.close()
        raise
    bus.close()
    return None


def _await_ready(process: subprocess.Popen[bytes], site: Site, candidate: Candidate) -> RedisBus | None:
    """The bus once the server is proven ours; None if it ended: a foreign server holds the port."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline and not site.stopped():
        try:
            bus = _prove(process, site, candidate)
        except BusError as error:
            log.debug("%s", error)
        else:
            if bus is not None:
                return bus
        time.sleep(0.02)
    return None


def _last_line(log: Path) -> str:
    with contextlib.suppress(OSError):
        lines = log.read_text(errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else ""
    return ""


def start(token: bytes, site: Site, configured: str = "redis-server", first: int = 0) -> RedisServer:
    """Start a server on the first free port of the step's list from `first` on.

    A port that a server of ours has left must not be taken again: whoever listened there since may know its secrets.
    RedisUnavailableError if none works.
    """
    binary = find_server(configured)
    output = site.directory / "redis.log"
    why = ""
    for k in range(first, rendezvous.TRIES):
        candidate = rendezvous.candidate(token, k)
        try:
            process = _spawn(binary, configuration(site.address, candidate, site.prefix, site.directory), output)
        except OSError as error:
            raise RedisUnavailableError(f"{binary}: can't be started: {error}") from None
        bus = _await_ready(process, site, candidate)
        if bus is not None:
            return RedisServer(process, bus, candidate)
        child.kill(process)
        if site.stopped():
            raise RedisUnavailableError("told to stop before redis-server was ready")
        why = _last_line(output) or why
    raise RedisUnavailableError(
        f"redis-server (6.0 or newer is needed) could not listen on {site.address} at any of the step's last "
        f"{rendezvous.TRIES - first} ports; last words: {why}"
    )
