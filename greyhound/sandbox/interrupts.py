"""Being told to stop: TERM and HUP count as Ctrl-C, and a clean-up that has begun is finished."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _interrupt(_signum: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@contextmanager
def _handled(action: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers, and only it gets KeyboardInterrupt
        return
    before = {number: signal.signal(number, action) for number in STOPS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def as_keyboard_interrupt() -> Iterator[None]:
    """Within the block each of STOPS raises KeyboardInterrupt, so that `finally` blocks clean up."""
    with _handled(_interrupt):
        yield


@contextmanager
def put_off(say: Callable[[str], None]) -> Iterator[None]:
    """Within the block none of STOPS has an effect but a word, at most one."""
    told: list[int] = []

    def answer(signum: int, _frame: FrameType | None) -> None:
        if not told:
            say("cleaning up, a moment")
        told.append(signum)

    with _handled(answer):
        yield
