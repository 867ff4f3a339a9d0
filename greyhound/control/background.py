"""A computation in a thread of its own, so that who waits for it can go on with its rounds."""

import logging
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

log = logging.getLogger(__name__)


class Background(Generic[T]):
    """Runs `function` at once. What it raises is logged by the thread, and there is no result; so where there is no
    thread to be had."""

    def __init__(self, name: str, function: Callable[[], T]) -> None:
        """`name` of the thread, 15 characters at most."""
        self._results: list[T] = []
        self._thread = threading.Thread(target=lambda: self._results.append(function()), name=name, daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:  # this user may have no more threads (ulimit -u)
            log.warning("%s: %s", name, error)

    @property
    def is_over(self) -> bool:
        """Whether it ended, one way or the other."""
        return not self._thread.is_alive()

    def wait(self, limit_s: float) -> None:
        """Until it is over, `limit_s` at most."""
        if self._thread.ident is not None:
            self._thread.join(limit_s)

    @property
    def result(self) -> T | None:
        """What the function gave; None before that, and where it failed."""
        return self._results[0] if self._results else None
