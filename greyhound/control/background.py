"""A computation in a thread of its own, so that who waits for it can go on with its rounds."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Background(Generic[T]):
    """Runs `function` at once. What it raises is logged by the thread, and there is no result."""

    def __init__(self, name: str, function: Callable[[], T]) -> None:
        """`name` of the thread, 15 characters at most."""
        self._results: list[T] = []
        self._thread = threading.Thread(target=lambda: self._results.append(function()), name=name, daemon=True)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        """Whether it ended, one way or the other."""
        return not self._thread.is_alive()

    def wait(self, limit_s: float) -> None:
        """Until it is over, `limit_s` at most."""
        self._thread.join(limit_s)

    @property
    def result(self) -> T | None:
        """What the function gave; None before that, and where it failed."""
        return self._results[0] if self._results else None
