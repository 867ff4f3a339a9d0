"""Writes a step's summary into its job's comment at the end, as the owner, from a thread that holds up nobody."""

import logging
import queue
import threading
from collections.abc import Callable

from greyhound.control.summary import Summary, merge

log = logging.getLogger(__name__)


class CommentError(RuntimeError):
    """The comment can't be read or written."""


class CommentWriter:
    """Reads the comment that is there at `begin`, adds a summary at `write`. What fails is a line in the log, no more.

    Two steps of one job that end in the same moment may overwrite each other's line: the records have both.
    """

    def __init__(self, read: Callable[[], str], write: Callable[[str], None]) -> None:
        """`read` and `write` raise CommentError, each after a bounded time."""
        self._read = read
        self._write = write
        self._wanted: queue.SimpleQueue[Summary] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Ask for the present comment while the nodes say goodbye: the step's end waits for us."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="gh-comment", daemon=True)
            self._thread.start()

    def write(self, summary: Summary) -> None:
        """Start to write; `wait` says how long."""
        self.begin()
        self._wanted.put(summary)

    def wait(self, limit_s: float) -> None:
        """Let it finish, for at most `limit_s` seconds."""
        if self._thread is None:
            return
        self._thread.join(limit_s)
        if self._thread.is_alive():
            log.warning("the job's comment wasn't written in time; `greyhound report` has it all the same")

    def _run(self) -> None:
        try:
            found = self._read()
            self._write(merge(found, self._wanted.get()))
        except CommentError as error:
            log.warning("the job's comment could not be written: %s", error)
