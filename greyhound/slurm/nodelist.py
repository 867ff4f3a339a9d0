"""Slurm node lists: `rack[1-2]n[01-03],login1` to names and back (hostlist expressions, slurm.conf(5))."""

import re
from collections.abc import Iterable, Iterator
from itertools import groupby, product

MAX_NODES = 65_536
"""Slurm's own bound of one hostlist range (64 Ki); a longer list is refused, not expanded."""

_PIECE = re.compile(r"([^\[\],\s]*)(?:\[([^\[\]]*)\])?")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?", re.ASCII)
_SIMPLE = re.compile(r"([A-Za-z0-9_.-]+)\[(\d{1,9})-(\d{1,9})\]", re.ASCII)  # most lists of a site
_NUMBERED = re.compile(r"(.*?)(\d+)", re.ASCII | re.DOTALL)
_MAX_DIGITS = 18


class NodeListError(ValueError):
    """A node list that cannot be read; the text holds the offending part."""


def expand(text: str, limit: int = MAX_NODES) -> list[str]:
    """Names in the list's order, duplicates kept once; NodeListError if malformed or more than `limit` names."""
    simple = _SIMPLE.fullmatch(text)
    if simple and 0 <= int(simple[3]) - int(simple[2]) < limit:
        width = len(simple[2])
        return [f"{simple[1]}{number:0{width}}" for number in range(int(simple[2]), int(simple[3]) + 1)]
    names: dict[str, None] = {}
    for part in _split(text):
        for name in _expand_part(part, limit):
            names[name] = None
            if len(names) > limit:
                raise NodeListError(f"node list {_short(text)} has more than {limit} names")
    return list(names)


def compress(names: Iterable[str]) -> str:
    """A short list with brackets over the last number: prefixes in order of appearance, numbers ascending.

    `expand(compress(names))` holds the same set; padding is kept (n9, n09 and n10 stay three names).
    """
    unique = list(dict.fromkeys(names))
    padded = {(prefix, len(digits)) for prefix, digits in map(_last_number, unique) if _is_padded(digits)}
    groups: dict[tuple[str, int], set[int]] = {}
    for name in unique:
        prefix, digits = _last_number(name)
        # 10 joins 08 and 09 where names of that width are padded, else 9 and 11.
        width = len(digits) if (prefix, len(digits)) in padded else 0
        groups.setdefault((prefix, width if digits else -1), set()).add(int(digits or 0))
    return ",".join(_compress_group(prefix, width, values) for (prefix, width), values in groups.items())


def _last_number(name: str) -> tuple[str, str]:
    """Prefix and final digits; no digits where there are none (or too many to be a number)."""
    if not name or re.search(r"[\[\],\s]", name):
        raise NodeListError(f"node name {_short(name)}: empty, or with a bracket, comma or blank")
    match = _NUMBERED.fullmatch(name)
    return (match[1], match[2]) if match and len(match[2]) <= _MAX_DIGITS else (name, "")


def _is_padded(digits: str) -> bool:
    return len(digits) > 1 and digits.startswith("0")


def _split(text: str) -> list[str]:
    """Parts between commas outside brackets."""
    parts, depth, start = [], 0, 0
    for position, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        if depth not in (0, 1):
            raise NodeListError(f"node list {_short(text)}: bracket out of place at character {position + 1}")
        if letter == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    if depth:
        raise NodeListError(f"node list {_short(text)}: a '[' is not closed")
    parts.append(text[start:])
    if parts == [""]:
        return []
    if "" in parts:
        raise NodeListError(f"node list {_short(text)}: an empty name between commas")
    return parts


def _expand_part(part: str, limit: int) -> Iterator[str]:
    choices: list[list[str]] = []
    total, position = 1, 0
    while position < len(part):
        match = _PIECE.match(part, position)
        if match is None or match.end() == position:
            raise NodeListError(f"node list part {_short(part)}: {part[position]!r} is not allowed")
        choices.append([match[1]])
        if match[2] is not None:
            numbers = _numbers(match[2], part, limit)
            total *= len(numbers)
            choices.append(numbers)
        if total > limit:
            raise NodeListError(f"node list part {_short(part)} stands for more than {limit} names")
        position = match.end()
    return ("".join(pieces) for pieces in product(*choices))


def _numbers(text: str, part: str, limit: int) -> list[str]:
    numbers: list[str] = []
    for piece in text.split(","):
        match = _RANGE.fullmatch(piece.strip())
        if match is None or len(piece) > 2 * _MAX_DIGITS + 1:
            raise NodeListError(
                f"node list part {_short(part)}: {_short(piece)} is neither a number nor a range like 01-16"
            )
        first, last, width = int(match[1]), int(match[2] or match[1]), len(match[1])
        if last < first:
            raise NodeListError(f"node list part {_short(part)}: range {piece} runs backwards")
        if len(numbers) + last - first >= limit:
            raise NodeListError(f"node list part {_short(part)} stands for more than {limit} names")
        numbers += [f"{number:0{width}}" for number in range(first, last + 1)]
    return numbers


def _compress_group(prefix: str, width: int, values: set[int]) -> str:
    if width < 0:
        return prefix
    ranges = []
    for _, run in groupby(enumerate(sorted(values)), key=lambda pair: pair[1] - pair[0]):
        numbers = [f"{value:0{width}}" for _, value in run]
        ranges.append(numbers[0] if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}")
    return f"{prefix}{ranges[0]}" if len(values) == 1 else f"{prefix}[{','.join(ranges)}]"


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
