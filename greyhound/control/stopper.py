"""How node process and master are told to end: STOP (child.py), and no other signal that a step may get."""

import contextlib
import os
import select
import signal
import sys
import time
from types import FrameType

from greyhound.control import child

END_S = 1.8
PARENT_DIED = "its parent process died"

# What may be sent to a whole step without meaning us: scancel --signal, batch signals before the time limit, Ctrl-C.
# TERM too: a training that saves its state on it runs on for minutes.
IGNORED: tuple[signal.Signals, ...] = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGALRM, signal.SIGTERM)
IGNORED += (signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)


class Stopper:
    """Turns STOP into a flag and a reason, and ignores every signal that a step may get."""

    def __init__(self) -> None:
        self.reason = ""
        self._asked_s: float | None = None
        self._asked, self._ask = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(child.STOP, self._on_signal)
        signal.signal(child.ORPHANED, self._on_signal)
        for signum in IGNORED:
            signal.signal(signum, signal.SIG_IGN)

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        self._asked_s = self._asked_s or time.monotonic()
        self.reason = self.reason or (PARENT_DIED if signum == child.ORPHANED else "the step ended")
        with contextlib.suppress(BlockingIOError):
            os.write(self._ask, b"!")

    def wait(self, limit_s: float) -> None:
        """Sleep, but only until told to stop: the step's end waits for us."""
        select.select([self._asked], [], [], limit_s)

    def left_s(self) -> float:
        """What is left of END_S since we were told to stop, all of it if nobody did."""
        return END_S if self._asked_s is None else max(0.0, self._asked_s + END_S - time.monotonic())


def leave(status: int) -> None:
    """End this process at once: Python would take a while to tear everything down, and the step's end waits for us."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
