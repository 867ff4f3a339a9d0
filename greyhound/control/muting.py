"""The site's kill switch: a file; while it exists, no hook records anything."""

import contextlib
import errno
import os
import threading
from pathlib import Path

PERIOD_S = 1.0
FIRST_LOOK_S = 0.25
MOST_TEXT = 200
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR)


def read_mute(path: Path) -> str:
    """Why nothing is recorded, or nothing where the file isn't there. OSError where that can't be told."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in _NOT_THERE:
            return ""
        path.stat()  # there, though not to be read: the text alone is missing
        return f"muted by the site ({path})"
    with os.fdopen(descriptor, "rb") as file:
        try:
            content = file.read(MOST_TEXT * 4) or b""  # a FIFO without a writer's word gives None
            text = content.decode(errors="replace")
        except OSError:
            text = ""
    line = "".join(c if c.isprintable() else "?" for c in text.partition("\n")[0].rstrip("\r"))[:MOST_TEXT]
    return f"muted by the site ({path}: {line})" if line else f"muted by the site ({path})"


class SiteMute:
    """Looks at the file once a second, in a thread of its own: its file system may hang, the rings must not wait."""

    def __init__(self, path: Path, period_s: float = PERIOD_S) -> None:
        self._path = path
        self._period_s = period_s
        self._reason = ""
        self._stopped = threading.Event()
        self._looked = threading.Event()
        thread = threading.Thread(target=self._run, name="gh-mute", daemon=True)
        thread.start()
        self._looked.wait(FIRST_LOOK_S)

    @property
    def reason(self) -> str:
        """Why nothing is recorded now; empty where the site doesn't mute."""
        return self._reason

    def stop(self) -> None:
        """Look no more."""
        self._stopped.set()

    def _look(self) -> None:
        with contextlib.suppress(OSError):  # what was last seen holds
            self._reason = read_mute(self._path)

    def _run(self) -> None:
        self._look()
        self._looked.set()
        while not self._stopped.wait(self._period_s):
            self._look()
