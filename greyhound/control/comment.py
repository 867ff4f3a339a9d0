"""Keeps a step's summary in its job's comment, as the owner, from a thread that holds up nobody.

It is written when something happened, so that at the step's end, which waits for us, there is nothing left to do but
where the last word differs.
"""

import logging
import threading
from collections.abc import Callable

from greyhound.control.summary import Summary, ours_in, with_ours

log = logging.getLogger(__name__)


class CommentError(RuntimeError):
    """The comment can't be read or written."""


class CommentWriter:
    """Reads the comment that is there and adds a summary. What fails is a line in the log, no more.

    What ours said before this step is kept and counted in. Two steps of one job that write in the same moment may
    overwrite each other's line: the records have both.
    """

    def __init__(self, read: Callable[[], str], write: Callable[[str], None]) -> None:
        """`read` and `write` raise CommentError, each after a bounded time."""
        self._read = read
        self._write = write
        self._lock = threading.Condition()
        self._wanted: Summary | None = None
        self._busy = False
        self._last = Summary()
        self._earlier: Summary | None = None
        self._thread: threading.Thread | None = None

    def update(self, summary: Summary) -> None:
        """The step's summary now; nothing is done where it says nothing or what was last said."""
        if not summary.says_something or summary.text() == self._last.text():
            return
        self._last = summary
        with self._lock:
            self._wanted = summary
            self._busy = True
            self._lock.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="gh-comment", daemon=True)
            self._thread.start()

    def wait(self, limit_s: float) -> None:
        """Let it finish what was asked for, for at most `limit_s` seconds."""
        with self._lock:
            if not self._lock.wait_for(lambda: not self._busy, limit_s):
                log.warning("the job's comment wasn't written in time; `greyhound report` has it all the same")

    def _run(self) -> None:
        while True:
            with self._lock:
                self._busy = self._wanted is not None
                self._lock.notify_all()
                self._lock.wait_for(lambda: self._wanted is not None)
                wanted, self._wanted = self._wanted, None
            if wanted is not None:
                self._put(wanted)

    def _put(self, summary: Summary) -> None:
        try:
            found = self._read()
            if self._earlier is None:
                self._earlier = ours_in(found)
            self._write(with_ours(found, self._earlier + summary))
        except CommentError as error:
            log.warning("the job's comment could not be written: %s", error)
