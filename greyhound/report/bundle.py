"""Everything that a support request about a job needs, in one archive, with nothing secret in it."""

import contextlib
import io
import os
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from greyhound.control.files import open_to_read

FILE_BYTES = 32 << 20
NAMES = ("events.jsonl", "status.json", "greyhound.log", "unmonitored", "node.log")
# Tokens and passwords are 64 hex digits; none belongs into a log, and should one get there it stays here.
_SECRET = re.compile(r"\b[0-9a-fA-F]{40,}\b")
_NAMED = re.compile(r"(?i)\b(\w*(?:token|password|secret|passwd|api_?key)\w*[\"']?\s*[=:]\s*[\"']?)[^\s,;\"']+")
REDACTED = "(removed)"


@dataclass(frozen=True)
class Part:
    """One file of the archive."""

    name: str
    text: str


def redact(text: str) -> str:
    """The text without what looks like a secret."""
    return _NAMED.sub(rf"\1{REDACTED}", _SECRET.sub(REDACTED, text))


def record_parts(folder: Path, below: str) -> Iterator[Part]:
    """The known files of a record folder or step directory; what can't be read is a part that says so."""
    for name in NAMES:
        path = folder / name
        try:
            with os.fdopen(open_to_read(path), "rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - FILE_BYTES))
                text = file.read(FILE_BYTES).decode(errors="replace")
        except FileNotFoundError:
            continue
        except OSError as error:
            yield Part(f"{below}/{name}.unreadable", f"{path}: {error.strerror}\n")
            continue
        cut = f"(the last {FILE_BYTES >> 20} MiB of {size >> 20})\n" if size > FILE_BYTES else ""
        yield Part(f"{below}/{name}", cut + text)


def write(path: Path, parts: Iterator[Part], top: str) -> list[str]:
    """Write an archive that its owner alone can read; its files' names. OSError, FileExistsError if it is there."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with contextlib.ExitStack() as undo:
        undo.callback(path.unlink, missing_ok=True)  # half an archive is none, and the next try would stumble over it
        with os.fdopen(descriptor, "wb") as raw, tarfile.open(fileobj=raw, mode="w:gz") as archive:
            names = [_add(archive, part, top) for part in parts]
        undo.pop_all()
    return names


def _add(archive: tarfile.TarFile, part: Part, top: str) -> str:
    content = redact(part.text).encode(errors="replace")
    entry = tarfile.TarInfo(f"{top}/{part.name}")
    entry.size, entry.mode = len(content), 0o600
    archive.addfile(entry, io.BytesIO(content))
    return part.name
