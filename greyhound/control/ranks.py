"""The ranks of `greyhound launch`: started, forwarded signals, ended together, never left behind."""

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from types import FrameType

from greyhound.control import child

GRACE_S = 5.0
POLL_S = 0.05


def free_port() -> int:
    """A port of loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def rank_environment(rank: int, count: int, port: int) -> dict[str, str]:
    """What torch.distributed's env:// reads; nothing for a single process, so that torchrun sets its own."""
    if count == 1:
        return {}
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def exit_code(status: int) -> int:
    """A shell's exit code of a Popen status: 128 + signal for a killed one."""
    return status if status >= 0 else 128 - status


class Ranks:
    """N processes of one command, each in a process group of its own so that its children end with it."""

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []
        self._first_failure: int | None = None
        self._interrupts = 0
        self._early_signal = 0
        self._started = False
        self._kill_at_s: float | None = None

    def forward_signals(self) -> None:
        """From now on pass signals on to the ranks; the third INT or TERM kills. Before `start` they prevent it."""
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(signum, self._on_signal)
        for signum in (signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(signum, self._pass_on)

    def start(self, command: Sequence[str], count: int, environment: Mapping[str, str]) -> None:
        """Start the ranks; OSError if the command can't be, and then none is left."""
        port = free_port() if count > 1 else 0
        for rank in range(count):
            if self._early_signal:
                return
            try:
                process = subprocess.Popen(
                    command,
                    env={**environment, **rank_environment(rank, count, port)},
                    stdin=subprocess.DEVNULL if count > 1 or _is_terminal(0) else None,
                    process_group=0,
                    preexec_fn=child.die_with_parent(signal.SIGTERM),
                )
            except OSError:
                self.end()
                raise
            self._processes.append(process)
        self._started = True

    def _pass_on(self, signum: int, frame: FrameType | None) -> None:
        self._signal_all(signum)

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        self._interrupts += 1
        if not self._started:
            self._early_signal = signum
        self._signal_all(signum if self._interrupts < 3 else signal.SIGKILL)

    def _signal_all(self, signum: int) -> None:
        for process in self._processes:
            # Not to a group whose leader was reaped: its number may belong to somebody else by now.
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signum)

    def wait(self, each_round: Callable[[], None]) -> int:
        """Until all have ended; the exit code is that of the first that failed, 0 if none did."""
        if self._early_signal:
            self.end()
            return 128 + self._early_signal
        while self._count_running():
            if self._first_failure is not None:
                self._end_the_others()
            each_round()
            time.sleep(POLL_S)
        return exit_code(self._first_failure or 0)

    def _count_running(self) -> int:
        return sum(self._running(process) for process in self._processes)

    def _running(self, process: subprocess.Popen[bytes]) -> bool:
        if process.returncode is not None:
            return False
        if not _has_ended(process.pid):
            return True
        # Still a zombie, so the group's number is still its own: end what the rank left behind, then reap it.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        status = process.wait()
        if status != 0 and self._first_failure is None:
            self._first_failure = status
        return False

    def _end_the_others(self) -> None:
        now_s = time.monotonic()
        if self._kill_at_s is None:
            self._kill_at_s = now_s + GRACE_S
            self._signal_all(signal.SIGTERM)
        elif now_s >= self._kill_at_s:
            self._kill_at_s = now_s + GRACE_S
            self._signal_all(signal.SIGKILL)

    def end(self) -> None:
        """Kill whatever still runs."""
        for process in self._processes:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _is_terminal(descriptor: int) -> bool:
    """A rank runs in a process group of its own: reading from the terminal would stop it."""
    try:
        return os.isatty(descriptor)
    except OSError:
        return False


def _has_ended(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
