"""Reads plugstack.conf and what it includes, as far as our line goes (spank(7), CONFIGURATION)."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

PLUGIN = "spank_greyhound.so"
_DEPTH = 10


@dataclass(frozen=True)
class Line:
    """Our line: where it stands, `optional` or `required`, the plugin's path and its arguments."""

    file: Path
    number: int
    kind: str
    plugin: Path
    arguments: dict[str, str] = field(default_factory=dict)


def _fields(text: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError:
        return text.split()


def read(path: Path, depth: int = 0) -> Iterator[Line]:
    """Our lines in Slurm's order; OSError if the first file can't be read, unreadable included ones are passed over."""
    for number, text in enumerate(path.read_text(errors="replace").splitlines(), 1):
        parts = _fields(text)
        if len(parts) == 2 and parts[0] == "include" and depth < _DEPTH:
            yield from _included(path, parts[1], depth)
        elif len(parts) >= 2 and Path(parts[1]).name == PLUGIN:
            pairs = (argument.partition("=") for argument in parts[2:])
            yield Line(path, number, parts[0], Path(parts[1]), {key: value for key, _, value in pairs})


def _included(path: Path, pattern: str, depth: int) -> Iterator[Line]:
    base, relative = (Path("/"), pattern.lstrip("/")) if pattern.startswith("/") else (path.parent, pattern)
    for file in sorted(base.glob(relative)):
        try:
            yield from read(file, depth + 1)
        except OSError:
            continue
