"""status.json: what the job is doing now. The live copy is replaced each second, the record copy rarely."""

import json
import logging
import os
from pathlib import Path
from typing import Any

from greyhound.control.files import open_to_read, write_atomically

LIVE_PERIOD_S = 1.0
RECORD_PERIOD_S = 30.0
FILE = "status.json"
MOST_BYTES = 16 * 2**20  # of a status that is read; a thousand nodes take a tenth of a megabyte

log = logging.getLogger(__name__)


def read_status(path: Path, owner: int | None = None) -> dict[str, Any] | None:
    """The status in a file, None if there is none or it isn't one; with `owner` only from a folder of that uid."""
    try:
        with os.fdopen(open_to_read(path, owner), "rb") as file:
            text = file.read(MOST_BYTES + 1)
        status = json.loads(text.decode(errors="replace")) if len(text) <= MOST_BYTES else None
    except (OSError, ValueError, RecursionError):
        return None
    return status if isinstance(status, dict) and "state" in status else None


class StatusWriter:
    """Writes both copies; `live` may be None (no step directory of ours)."""

    def __init__(self, live: Path | None, record: Path) -> None:
        self._live = live
        self._record = record
        self._live_due_s = 0.0
        self._record_due_s = 0.0
        self._state: object = None
        self._failed: set[Path] = set()

    def update(self, status: dict[str, Any], now_s: float, force: bool = False) -> None:
        """Write what is due at `now_s` (any clock that doesn't go back); a change of state or `force` is due now."""
        changed = force or status.get("state") != self._state
        self._state = status.get("state")
        text = json.dumps(status, indent=1) + "\n"
        if self._live is not None and (changed or now_s >= self._live_due_s):
            self._live_due_s = now_s + LIVE_PERIOD_S
            self._put(self._live, text)
        if changed or now_s >= self._record_due_s:
            self._record_due_s = now_s + RECORD_PERIOD_S
            self._put(self._record, text)

    def _put(self, path: Path, text: str) -> None:
        try:
            write_atomically(path, text)
        except OSError as error:
            if path not in self._failed:
                log.warning("status can't be written to %s: %s", path, error.strerror)
            self._failed.add(path)
