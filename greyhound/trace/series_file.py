"""Reads series of iteration times: CSV text with the columns ``iteration`` and ``seconds``, plain or gzipped.

What is read is decided row by row, and never from rows that come later:

- the first line that isn't empty names the columns, in any order and among others; where it is numbers, there are two
  columns, iteration and seconds. Columns end with a comma, a semicolon or a tab, whichever that line uses first.
- skipped, counted and told with their lines: a row with another number of columns, without a whole number from 0 to
  2^63 - 1 as its iteration (beyond 2^53 only digits are exact: no point, no exponent), or with a time that is no number
  from 1e-9 to 1e9 (empty, text, NaN, zero, negative, infinite)
- an iteration that isn't above the last one is skipped, too. If ten rows in a row lie below but rise among themselves,
  the training began anew: they are taken, and what comes before them is another run.
- empty lines and lines that begin with # are nothing. Byte order mark and any line ends are accepted.
- refused as a whole (``SeriesError``): binary data, UTF-16, lines of more than 4,096 characters, other columns
- gzip data that ends early or is damaged: what could be read is taken, and it is said
"""

import gzip
import io
import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

_LONGEST_LINE = 4096
_SHORTEST_S, _LONGEST_S = 1e-9, 1e9
_RESTART_ROWS = 10
_EXAMPLES = 3
_SEPARATORS = ",;\t"
_COLUMNS = ("iteration", "seconds")
_WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff")
_LARGEST_ITERATION = 2**63 - 1  # nanoseconds since 1970 are among them
_LARGEST_EXACT_FLOAT = 2**53
_MOST_DIGITS = 19
GZIP_MAGIC = b"\x1f\x8b"


class SeriesError(ValueError):
    """The file is no series; the message says at which line and what to do."""


@dataclass
class Skipped:
    """Rows that were left out: how many, and the first few with line and reason."""

    count: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, line: int, reason: str) -> None:
        """Count a row."""
        self.count += 1
        if len(self.examples) < _EXAMPLES:
            self.examples.append(f"line {line}: {reason}")

    def sentence(self) -> str:
        """For people."""
        rows = "1 row" if self.count == 1 else f"{self.count} rows"
        more = ", ..." if self.count > len(self.examples) else ""
        return f"{rows} skipped ({'; '.join(self.examples)}{more})"


class _BadRowError(ValueError):
    """Why a row is left out."""


@dataclass(frozen=True)
class _Row:
    line: int
    iteration: int
    seconds: float


@dataclass(frozen=True)
class _Columns:
    """Where the two columns are."""

    separator: str
    count: int
    iteration: int
    seconds: int

    def parse(self, line: int, text: str) -> _Row:
        fields = _split(text, self.separator)
        if len(fields) != self.count:
            raise _BadRowError(f"{len(fields)} columns, expected {self.count}")
        return _Row(line, _iteration(fields[self.iteration]), _seconds(fields[self.seconds]))


class SeriesReader:
    """Iterates over (iteration, seconds) of one file; iterations rise but where a training began anew."""

    def __init__(self, stream: io.BufferedReader) -> None:
        """``stream`` holds text or gzip data, from its beginning."""
        self.skipped = Skipped()
        self.warnings: list[str] = []
        self._text = io.TextIOWrapper(_unpacked(stream), encoding="utf-8-sig", errors="replace", newline=None)
        self._behind: list[_Row] = []

    def __iter__(self) -> Iterator[tuple[int, float]]:
        last: int | None = None
        for row in self._rows():
            if last is None or row.iteration > last:
                self._drop_behind(last)
                last = row.iteration
                yield row.iteration, row.seconds
            elif anew := self._begins_anew(row, last):
                yield from ((each.iteration, each.seconds) for each in anew)
                last = row.iteration
        self._drop_behind(last)

    def _rows(self) -> Iterator[_Row]:
        columns: _Columns | None = None
        for line, text in self._lines():
            if columns is None:
                columns, is_header = _find_columns(line, text)
                if is_header:
                    continue
            try:
                row = columns.parse(line, text)
            except _BadRowError as error:
                self.skipped.add(line, str(error))
            else:
                yield row

    def _lines(self) -> Iterator[tuple[int, str]]:
        """Numbered lines with something in them."""
        number = 0
        while True:
            try:
                text = self._text.readline(_LONGEST_LINE)
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                self.warnings.append(f"the gzip data are cut off or damaged after line {number}: {error}")
                return
            if not text:
                return
            number += 1
            _check_text(number, text)
            text = text.strip()
            if text and not text.startswith("#"):
                yield number, text

    def _begins_anew(self, row: _Row, last: int) -> list[_Row]:
        """The latest rows, ``row`` included, if they show that the count began again."""
        if self._behind and row.iteration <= self._behind[-1].iteration:
            self._drop_behind(last)
        self._behind.append(row)
        if len(self._behind) < _RESTART_ROWS:
            return []
        anew, self._behind = self._behind, []
        self.warnings.append(f"line {anew[0].line}: the iterations begin again at {anew[0].iteration}; learnt anew")
        return anew

    def _drop_behind(self, last: int | None) -> None:
        for row in self._behind:
            self.skipped.add(row.line, f"iteration {row.iteration} is not above {last}")
        self._behind.clear()


def _unpacked(stream: io.BufferedReader) -> BinaryIO:
    start = stream.peek(2)[:2]
    if start == GZIP_MAGIC:
        return gzip.GzipFile(fileobj=stream)  # type: ignore[return-value]
    if start in _WIDE_MARKS:
        raise SeriesError("line 1: UTF-16 text; save the file as UTF-8")
    return stream


def _check_text(number: int, text: str) -> None:
    if "\0" in text:
        raise SeriesError(f"line {number}: binary data, not a series; expected text with the columns iteration,seconds")
    if len(text) >= _LONGEST_LINE:
        raise SeriesError(f"line {number}: longer than {_LONGEST_LINE} characters; expected lines like 17,0.4821")


def _split(text: str, separator: str) -> list[str]:
    return [part.strip(" \t\"'") for part in text.split(separator)]


def _find_columns(line: int, text: str) -> tuple[_Columns, bool]:
    """The columns that the first line names or has, and whether it names them."""
    separator = next((letter for letter in text if letter in _SEPARATORS), ",")
    fields = _split(text, separator)
    names = [part.lower() for part in fields]
    if all(names.count(column) == 1 for column in _COLUMNS):
        return _Columns(separator, len(names), *(names.index(column) for column in _COLUMNS)), True
    if len(fields) == 2 and any(_is_number(part) for part in fields):
        return _Columns(separator, 2, 0, 1), False
    shown = text if len(text) <= 60 else text[:57] + "..."
    raise SeriesError(
        f"line {line}: {shown!r} doesn't name the columns; put the header iteration,seconds above the rows"
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _number(text: str, what: str) -> float:
    if not text:
        raise _BadRowError(f"no {what}")
    try:
        # float() also takes 1_000 and digits of other scripts: a slip rather than a number here.
        if "_" in text or not text.isascii():
            raise ValueError
        return float(text)
    except ValueError:
        raise _BadRowError(f"{text[:40]!r} is not a number") from None


def _iteration(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS:
        number = int(text)
        if number <= _LARGEST_ITERATION:
            return number
    value = _number(text, "iteration")
    if not (math.isfinite(value) and value == int(value) and value >= 0):
        raise _BadRowError(f"iteration {text[:40]} is not a whole number from 0")
    if value > _LARGEST_EXACT_FLOAT:
        raise _BadRowError(f"iteration {text[:40]} is too large; write digits only, {_LARGEST_ITERATION} at most")
    return int(value)


def _seconds(text: str) -> float:
    value = _number(text, "seconds")
    if not _SHORTEST_S <= value <= _LONGEST_S:
        raise _BadRowError(f"{text[:40]} is not a time in seconds")
    return value
