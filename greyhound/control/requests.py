"""What the owner asks of the master while the job runs: a file in the record folder, answered by an event.

Kinds and their fields are one table; a value is checked and never evaluated. Only the job's own user can put a file
there, and one that isn't his alone isn't read.
"""

import contextlib
import json
import logging
import os
import re
import secrets
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from greyhound.config import MODES
from greyhound.control.files import open_to_read, write_atomically

VERSION = 1
MOST_BYTES = 4096
MOST_A_ROUND = 20
_NAME = re.compile(r"request\.([0-9a-f]{16})\.json", re.ASCII)

log = logging.getLogger(__name__)


class RequestError(ValueError):
    """Something that can't be asked; the message names the text and what is allowed."""


@dataclass(frozen=True)
class Request:
    """One request; `why_not` says why it can't be read (kind and fields are then empty)."""

    id: str
    kind: str
    fields: Mapping[str, Any]
    why_not: str = ""


def _number(low: float, high: float) -> Callable[[Any], float]:
    def check(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise RequestError(f"{value!r} is no number from {low:g} to {high:g}")
        return float(value)

    return check


def _one_of(*allowed: str) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if value not in allowed:
            raise RequestError(f"{value!r} is none of {', '.join(allowed)}")
        return str(value)

    return check


KINDS: dict[str, dict[str, Callable[[Any], Any]]] = {
    "set": {"mode": _one_of(*MODES), "threshold": _number(0.02, 1.0)},
    "ab": {"minutes": _number(0.1, 60.0)},
    "ab_stop": {},
    "trace": {"seconds": _number(0.1, 600.0)},
    "profile": {},
}
"""Kind -> its fields, each of which may be left out, and how a value is checked."""


def check(kind: Any, fields: Any) -> dict[str, Any]:
    """The fields, checked; RequestError names the first that is wrong."""
    if not isinstance(kind, str) or kind not in KINDS:
        raise RequestError(f"unknown request {kind!r}; there are {', '.join(KINDS)}")
    if not isinstance(fields, dict):
        raise RequestError(f"fields of {kind!r} are no object")
    checked = {}
    for name, value in fields.items():
        if name not in KINDS[kind]:
            raise RequestError(f"unknown field {name!r} of {kind!r}; there are {', '.join(KINDS[kind]) or 'none'}")
        try:
            checked[name] = KINDS[kind][name](value)
        except RequestError as error:
            raise RequestError(f"{name}: {error}") from None
    return checked


def submit(folder: Path, kind: str, fields: Mapping[str, Any]) -> str:
    """Lay a request into a record folder; its id. RequestError for bad ones, OSError where the folder isn't ours."""
    request = secrets.token_hex(8)
    text = json.dumps({"v": VERSION, "kind": kind, "fields": check(kind, dict(fields))}, allow_nan=False)
    write_atomically(_path(folder, request), text + "\n", 0o600)
    return request


def withdraw(folder: Path, request: str) -> bool:
    """Take a request back; False where the master has it already."""
    try:
        _path(folder, request).unlink()
    except OSError:
        return False
    return True


def _path(folder: Path, request: str) -> Path:
    return folder / f"request.{request}.json"


def _parse(text: bytes) -> tuple[str, dict[str, Any]]:
    if len(text) > MOST_BYTES:
        raise RequestError(f"longer than {MOST_BYTES} bytes")
    try:
        raw = json.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise RequestError(f"not JSON: {error}") from None
    if not isinstance(raw, dict) or raw.get("v") != VERSION:
        raise RequestError(f"not a request of version {VERSION}")
    return raw["kind"] if isinstance(raw.get("kind"), str) else "", check(raw.get("kind"), raw.get("fields"))


def _read(path: Path) -> bytes:
    """The text of a file that is this user's alone; RequestError for any other."""
    try:
        with os.fdopen(open_to_read(path, os.geteuid()), "rb") as file:
            status = os.fstat(file.fileno())
            if status.st_uid != os.geteuid():
                raise RequestError(f"belongs to uid {status.st_uid}, not to the job's owner (uid {os.geteuid()})")
            if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO) or status.st_nlink != 1:
                raise RequestError(f"not its owner's alone (mode {stat.S_IMODE(status.st_mode):04o})")
            return file.read(MOST_BYTES + 1)
    except OSError as error:
        raise RequestError(f"can't be read: {error.strerror}") from None


class RequestBox:
    """The master's side; each request is taken once, whatever becomes of its file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._taken: set[str] = set()

    def take(self) -> list[Request]:
        """What has been asked since the last call, MOST_A_ROUND at most."""
        found = [entry for entry in self._names() if entry not in self._taken][:MOST_A_ROUND]
        return [self._take(request) for request in found]

    def _names(self) -> list[str]:
        with contextlib.suppress(OSError), os.scandir(self._folder) as entries:
            return sorted(match[1] for entry in entries if (match := _NAME.fullmatch(entry.name)))
        return []

    def _take(self, request: str) -> Request:
        path = _path(self._folder, request)
        try:
            kind, fields = _parse(_read(path))
            taken = Request(request, kind, fields)
        except RequestError as error:
            taken = Request(request, "", {}, str(error))
        try:
            path.unlink()
        except OSError as error:
            self._taken.add(request)
            log.warning("request %s can't be removed: %s", path, error.strerror)
        return taken
