"""status.json: what the job is doing now. The live copy is replaced each second, the record copy rarely."""

import json
import logging
import os
from pathlib import Path
from typing import Any

LIVE_PERIOD_S = 1.0
RECORD_PERIOD_S = 30.0
FILE = "status.json"

log = logging.getLogger(__name__)


def write_atomically(path: Path, text: str, mode: int = 0o640) -> None:
    """Replace `path` with `text` in one step, so that a reader sees the old or the new, never a half. OSError."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
    partial.replace(path)


def read_status(path: Path) -> dict[str, Any] | None:
    """The status in a file, None if there is none or it isn't one."""
    try:
        status = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError):
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
