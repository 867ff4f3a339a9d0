"""Free ports and job id ranges, apart from those of every other sandbox on this machine."""

import contextlib
import random
import socket
import time
from collections.abc import Iterator

from greyhound.sandbox.errors import SandboxError
from greyhound.sandbox.layout import JOB_RANGE
from greyhound.sandbox.state import State

# Below Linux's ephemeral range (32768 on) and apart from the masters' Redis ports (20000 to 31999).
FIRST_PORT, LAST_PORT = 10_000, 19_999
JOB_RANGES = 999


def choose(names: list[str], running: list[State]) -> dict[str, int]:
    """One free loopback port for each name; none that another sandbox has written down."""
    taken = {port for state in running for port in state.ports.values()}
    candidates = [port for port in range(FIRST_PORT, LAST_PORT + 1) if port not in taken]
    random.shuffle(candidates)
    free = (port for port in candidates if _is_free(port))
    chosen = dict(zip(names, free, strict=False))
    if len(chosen) < len(names):
        raise SandboxError(f"fewer than {len(names)} free ports between {FIRST_PORT} and {LAST_PORT} on 127.0.0.1")
    return chosen


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True


def choose_first_job_id(running: list[State]) -> int:
    """First job id of a range of JOB_RANGE ids that no other sandbox uses."""
    taken = {state.first_job_id for state in running}
    options = [JOB_RANGE * k + 1 for k in range(1, JOB_RANGES + 1)]
    return random.choice([first for first in options if first not in taken] or options)


@contextlib.contextmanager
def lock(key: str, timeout_s: float = 60.0) -> Iterator[None]:
    """Mutual exclusion between processes of one network namespace; ends by itself with the holder (abstract socket)."""
    deadline = time.monotonic() + timeout_s
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as holder:
        while True:
            try:
                holder.bind(f"\0greyhound-sandbox-lock-{key}")
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise SandboxError(f"another `greyhound sandbox` is at work (lock {key}); try again") from None
                time.sleep(0.05)
        yield
