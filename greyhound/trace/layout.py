"""The ring file's layout, read from the one definition: greyhound_ring.h.

Every plain ``#define GH_NAME NUMBER`` line of the header is an attribute of this module: ``layout.GH_OFF_HEAD``.
"""

import re
from pathlib import Path
from types import MappingProxyType

_PACKAGE = Path(__file__).resolve().parent.parent
_HEADER_PATHS = (
    _PACKAGE / "_native" / "greyhound_ring.h",
    _PACKAGE.parent / "hook" / "include" / "greyhound_ring.h",
)
_DEFINE = re.compile(r"^#define[ \t]+(GH_[A-Z0-9_]+)[ \t]+(0x[0-9a-fA-F]+|[0-9]+)(?:[ \t]*/\*.*)?[ \t]*$", re.MULTILINE)


class LayoutError(ImportError):
    """The ring header is missing or lacks a constant: the installation is incomplete."""


def parse_header(text: str) -> dict[str, int]:
    """Integer constants of a ring header's text, by name."""
    return {name: int(number, 0) for name, number in _DEFINE.findall(text)}


def _find_header() -> Path:
    for path in _HEADER_PATHS:
        if path.is_file():
            return path
    looked = " or ".join(str(path) for path in _HEADER_PATHS)
    raise LayoutError(f"greyhound_ring.h not found at {looked}; reinstall greyhound (pip install .)")


HEADER_PATH = _find_header()
CONSTANTS = MappingProxyType(parse_header(HEADER_PATH.read_text(encoding="utf-8")))

globals().update(CONSTANTS)  # found at once; __getattr__ is for names that aren't there, and for type checkers

OPS = MappingProxyType(
    {number: name.removeprefix("GH_OP_").lower() for name, number in CONSTANTS.items() if name.startswith("GH_OP_")}
)
"""Names of operations by number: 1 -> "all_reduce"."""


def __getattr__(name: str) -> int:
    if name.startswith("GH_"):
        raise LayoutError(f"{HEADER_PATH} defines no {name}: header and package are of different versions; reinstall")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
