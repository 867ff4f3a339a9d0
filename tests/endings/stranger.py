"""What another user of the node may try on a watched step: prints, as JSON, each thing that worked.

    python -I stranger.py STEP_DIR RECORD PORT PREFIX PID... < NAMES_OF_RINGS

The test runs it as the step's own user too: there the same attempts must work, or they prove nothing.
"""

import contextlib
import ctypes
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

ONCE = Retry(NoBackoff(), 0)  # redis-py would take each refusal for a bad connection, and wait
PTRACE_ATTACH, PTRACE_DETACH = 16, 17
GUESSES = ("", "greyhound", "password", "0" * 64, "f" * 64)
COMMANDS = (
    "PING", "INFO", "KEYS *", "GET {prefix}identity", "EXISTS {prefix}master", "XREAD STREAMS {prefix}up 0",
    "XADD {prefix}down * m evil", "SET {prefix}greeting evil", "CONFIG GET dir", "ACL LIST", "CLIENT LIST", "SCAN 0",
    "FLUSHALL", "MONITOR", "SUBSCRIBE x", "DEBUG SLEEP 0", "SCRIPT LIST", "EVAL return(1) 0", "REPLICAOF NO ONE",
    "GET {prefix}up", "OBJECT HELP", "COMMAND COUNT", "SHUTDOWN NOSAVE",
)  # fmt: skip


def read(path: Path) -> None:
    """A byte, for FIFOs and memory at their first readable place."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        os.read(descriptor, 1)
    finally:
        os.close(descriptor)


def write(path: Path) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK))


def connect(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(path))


def ptrace(pid: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(PTRACE_ATTACH, pid, None, None) != 0:
        raise OSError(ctypes.get_errno(), "ptrace")
    os.waitpid(pid, 0)
    libc.ptrace(PTRACE_DETACH, pid, None, None)


def on_files(step_dir: Path, record: Path, rings: list[str]) -> Iterator[tuple[str, Callable[[], object]]]:
    """The names are known or guessed, as a stranger can't list them."""
    for folder, names in ((step_dir, ("status.json", "node.log", "redis.log")), (record, ("events.jsonl",))):
        yield f"list {folder}", lambda folder=folder: os.listdir(folder)
        yield f"make a file in {folder}", lambda folder=folder: (folder / "status.json.evil").touch()
        for name in (*names, *rings):
            yield f"read {folder / name}", lambda path=folder / name: read(path)
            yield f"write {folder / name}", lambda path=folder / name: write(path)
    yield "enter redis.sock", lambda: connect(step_dir / "redis.sock")


def on_process(pid: int) -> Iterator[tuple[str, Callable[[], object]]]:
    for name in ("environ", "maps", "auxv"):
        yield f"read /proc/{pid}/{name}", lambda name=name: read(Path(f"/proc/{pid}/{name}"))
    yield f"open /proc/{pid}/mem", lambda: os.close(os.open(f"/proc/{pid}/mem", os.O_RDONLY))
    yield f"list /proc/{pid}/fd", lambda: os.listdir(f"/proc/{pid}/fd")
    yield f"enter /proc/{pid}/cwd", lambda: os.listdir(f"/proc/{pid}/cwd")
    yield f"ptrace {pid}", lambda: ptrace(pid)
    yield f"signal {pid}", lambda: os.kill(pid, signal.SIGCONT)


def on_redis(port: int, prefix: str) -> Iterator[tuple[str, Callable[[], object]]]:
    def ask(command: str) -> object:
        with contextlib.closing(redis.Redis(port=port, socket_timeout=2, protocol=2, retry=ONCE)) as client:
            return client.execute_command(*command.format(prefix=prefix).split())

    def log_in(user: str, password: str) -> object:
        with contextlib.closing(redis.Redis(port=port, socket_timeout=2, protocol=2, retry=ONCE)) as client:
            answer = client.execute_command("AUTH", user, password)
            # The default user needs no password: what matters is what it may do then.
            return answer if user == "greyhound" else client.execute_command("KEYS", "*")

    for command in COMMANDS:
        yield f"redis {command}", lambda command=command: ask(command)
    greeting = str(ask("GET {prefix}greeting").decode())  # type: ignore[attr-defined]
    for user in ("greyhound", "default"):
        for guess in (*GUESSES, greeting, greeting.upper(), greeting[:-1]):
            yield f"log in as {user} with {guess!r}", lambda user=user, guess=guess: log_in(user, guess)


def tried(attempts: Iterator[tuple[str, Callable[[], object]]]) -> Iterator[str]:
    for name, attempt in attempts:
        with contextlib.suppress(OSError, redis.RedisError):
            attempt()
            yield name


def main() -> None:
    step_dir, record, port, prefix, *pids = sys.argv[1:]
    rings = sys.stdin.read().split()
    done = [*tried(on_files(Path(step_dir), Path(record), rings)), *tried(on_redis(int(port), prefix))]
    for pid in pids:
        done += tried(on_process(int(pid)))
    print(json.dumps(done))


if __name__ == "__main__":
    main()
