"""Small files of /proc and /sys for evidence: read without ever raising, and turned into numbers; NaN is n/a."""

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from greyhound.localize.cause_evidence import Place, Row

MOST_BYTES = 1 << 17
MOST_NAMES = 128  # GPUs, instances or ports in a reading; more are no node of ours


@dataclass(frozen=True)
class Target:
    """A rank to read evidence of: its key (`RankSample.key`), process number on this host and GPU's PCI bus id."""

    key: str
    pid: int
    bus: str = ""


class Source(Protocol):
    """Reads one kind of evidence; called from one thread, which may hang in it."""

    @property
    def name(self) -> str: ...

    def read(self, targets: tuple[Target, ...]) -> tuple[Mapping[Place, Row], Mapping[str, str]]:
        """Rows by place, and by name why something isn't known. Never raises for what the machine lacks."""
        ...


def read_text(path: Path | str) -> str:
    """The beginning of a file, empty where it can't be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(descriptor, MOST_BYTES).decode(errors="replace")
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def listed(path: Path) -> list[str]:
    """Names in a folder, sorted; none where it can't be listed."""
    try:
        return sorted(os.listdir(path))  # noqa: PTH208 - twice as fast as iterdir, many folders each round
    except OSError:
        return []


def number(text: str) -> float:
    """A number at the beginning of a text (`400 Gb/sec`), NaN where there is none."""
    try:
        value = float(text.split(maxsplit=1)[0])
    except (ValueError, IndexError):
        return math.nan
    return value if math.isfinite(value) else math.nan


def table(text: str) -> dict[str, float]:
    """Lines of a name and a number (cpu.stat, vmstat), other lines passed over."""
    rows = (line.split() for line in text.splitlines())
    return {row[0]: number(row[1]) for row in rows if len(row) == 2}


def pressure(text: str) -> dict[str, float]:
    """Seconds of pressure so far by `some` and `full` (PSI: `some avg10=0.00 avg60=0.00 avg300=0.00 total=123`)."""
    found = {}
    for line in text.splitlines():
        kind, _, rest = line.partition(" ")
        total = rest.rpartition("total=")[2]
        found[kind] = number(total) / 1e6
    return found


def difference(now: float, then: float) -> float:
    """Growth of a counter; 0 where it began anew."""
    return now - then if now >= then else 0.0


def scaled(values: Mapping[str, float], wanted: Mapping[str, tuple[str, float]]) -> dict[str, float]:
    """Fields from a table: by field the table's name and the factor; those that are missing are left out."""
    return {field: values[name] * factor for field, (name, factor) in wanted.items() if name in values}


def total(values: Callable[[str], float], *names: str) -> float:
    """Sum of those that are known, NaN where none is."""
    known = [value for value in map(values, names) if not math.isnan(value)]
    return sum(known) if known else math.nan
