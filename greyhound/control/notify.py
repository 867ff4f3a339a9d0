"""Lines in the job's own output through `scontrol notify`, from a thread, so that Slurm never holds up the master."""

import logging
import queue
import threading
import time
from collections.abc import Callable

SPACING_S = 2.0
MOST_AN_HOUR = 30

log = logging.getLogger(__name__)


class NotifyError(RuntimeError):
    """A line didn't get through."""


class Notifier:
    """Sends lines at most every SPACING_S seconds and MOST_AN_HOUR an hour; failures are a line in the log."""

    def __init__(self, send: Callable[[str], None]) -> None:
        self._send = send
        self._queue: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._sent_s: list[float] = []
        self._last = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gh-notify", daemon=True)
        self._thread.start()

    def tell(self, text: str) -> None:
        """Queue one line; dropped with a log line when there were too many."""
        now_s = time.monotonic()
        self._sent_s = [sent_s for sent_s in self._sent_s if now_s - sent_s < 3600]
        if len(self._sent_s) >= MOST_AN_HOUR:
            log.warning("too many notices this hour, not sent: %s", text)
            return
        self._sent_s.append(now_s)
        self._queue.put(text)

    def finish(self, wait_s: float) -> None:
        """Send what is queued without spacing, for at most `wait_s` seconds."""
        self._last.set()
        self._queue.put(None)
        self._thread.join(wait_s)

    def _run(self) -> None:
        while (text := self._queue.get()) is not None:
            try:
                self._send(f"greyhound: {text}")
            except NotifyError as error:
                log.warning("the job's owner could not be notified: %s", error)
            self._last.wait(SPACING_S)
