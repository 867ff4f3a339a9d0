"""Small Linux helpers for processes of ours: die with the parent, be modest, end within a bound."""

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path

PR_SET_PDEATHSIG = 1
NICE = 10
LOOK_S = 0.002
STOP = signal.SIGRTMIN + 5
"""Tells a process of ours to end (spank/stop.h): TERM goes to a whole step, which may live on for minutes."""
ORPHANED = signal.SIGRTMIN + 6
"""What the kernel sends when the parent died: `getppid` can't tell, as a parent of several threads dies bit by bit."""
SERVERS_OWN = (signal.SIGINT, signal.SIGTERM)
"""What a server that we start would end by, though the step goes on; the others are ignored by inheritance."""


def die_with_parent(signum: int = signal.SIGKILL, blocked: Iterable[int] = ()) -> Callable[[], None]:
    """A preexec function: the kernel sends `signum` to the child when the thread that started it ends.

    If the parent is gone before the kernel was told, the child ends at once. Signals in `blocked` never reach it.
    """
    parent = os.getpid()
    libc = ctypes.CDLL(None, use_errno=True)

    def preexec() -> None:
        libc.prctl(PR_SET_PDEATHSIG, int(signum), 0, 0, 0)
        signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
        if os.getppid() != parent:
            os._exit(1)

    return preexec


def be_modest() -> None:
    """Nice 10 (where the waiter hasn't seen to it), first choice of the out-of-memory killer: training goes first."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, max(NICE, os.getpriority(os.PRIO_PROCESS, 0)))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def end(process: subprocess.Popen[bytes], grace_s: float) -> int:
    """STOP, wait at most `grace_s` seconds, KILL; returns the process's exit status as Popen gives it."""
    if process.poll() is None:
        process.send_signal(STOP)
        if not _ended_within(process, grace_s):
            process.kill()
    return process.wait()


def _ended_within(process: subprocess.Popen[bytes], limit_s: float) -> bool:
    """Popen.wait with a limit, but for its naps, which grow to 50 ms: the step's end waits for us."""
    end_s = time.monotonic() + limit_s
    while process.poll() is None:
        if time.monotonic() >= end_s:
            return False
        time.sleep(LOOK_S)
    return True


def kill(process: subprocess.Popen[bytes]) -> None:
    """End a process that has nothing to say or to keep."""
    process.kill()
    process.wait()


def describe_exit(status: int) -> str:
    """`exit code 3` or `signal 9 (SIGKILL)` for a Popen return code."""
    if status >= 0:
        return f"exit code {status}"
    try:
        return f"signal {-status} ({signal.Signals(-status).name})"
    except ValueError:
        return f"signal {-status}"
