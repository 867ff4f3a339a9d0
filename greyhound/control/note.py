"""The file `unmonitored` in the step directory: one line, which the plugin shows at the step's end."""

import contextlib
import logging
import os
from pathlib import Path
from types import TracebackType

FILE = "unmonitored"
LONGEST = 400
PATIENCE_S = 60.0

log = logging.getLogger(__name__)


def failure(error: Exception) -> str:
    """What a failure of this process means to the user."""
    if isinstance(error, ImportError):
        # A package or the C reader is missing here: the installation's fault.
        return f"the analyzer can't be loaded: {error}"
    return f"the node process failed: {type(error).__name__}: {error}"


class Note:
    """Says that this node is not monitored. As a context: an exception that leaves it is noted, and goes on."""

    def __init__(self, step_dir: Path) -> None:
        self._path = step_dir / FILE

    def write(self, reason: str) -> None:
        """Replace the line; a step directory that is gone or full is no further trouble."""
        line = " ".join(reason.split())[:LONGEST]
        log.error("unmonitored: %s", line)
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(line + "\n")

    @property
    def exists(self) -> bool:
        """Whether there is a line already."""
        return self._path.exists()

    def remove(self) -> None:
        """Monitored again."""
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)

    def __enter__(self) -> "Note":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            self.write(failure(error))


class MasterSearch:
    """Notes a node that has had no master for PATIENCE_S: nobody else can, as the master isn't there.

    One that ended is for its own node to say: thousands would say the same.
    """

    def __init__(self, note: Note) -> None:
        self._note = note
        self._since_s: float | None = None
        self._was_connected = False
        self._noted = False
        self._logged = False

    def check(self, connected: bool, now_s: float) -> None:
        """Once a round, at `now_s` (monotonic)."""
        if connected:
            self._since_s = None
            self._was_connected = True
            self._logged = False
            if self._noted:
                self._noted = False
                self._note.remove()
            return
        if self._since_s is None:
            self._since_s = now_s
        if now_s - self._since_s < PATIENCE_S:
            return
        if self._was_connected:
            self._log_once()
        elif not self._note.exists:
            self._noted = True
            self._note.write("no master: the step's first node made no communicator or is not monitored itself")

    def _log_once(self) -> None:
        if not self._logged:
            log.error("the master is out of reach: it ended or its node failed")
        self._logged = True
