"""What a check found."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum


class Level(IntEnum):
    """How bad; the worst of all is the command's exit code, as node health checkers expect it."""

    OK = 0
    WARN = 1
    FAIL = 2


@dataclass(frozen=True)
class Finding:
    """One line: what was looked at, what was seen, and what mends it (empty if nothing needs to be)."""

    name: str
    level: Level
    text: str
    mend: str = ""


Check = Callable[[], Iterable[Finding]]


def worst(findings: Iterable[Finding]) -> Level:
    """The level of the worst one; OK for none."""
    return max((finding.level for finding in findings), default=Level.OK)
