"""Rates and durations as people write them: `50MB/s`, `400Gb/s`, `5ms`, `20us`."""

import math
import re

from greyhound.sandbox.errors import SandboxError

_PREFIX = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_NUMBER = r"(\d+(?:\.\d*)?|\.\d+)"
_RATE = re.compile(rf"{_NUMBER}\s*([KMGT]i|[kKMGT]?)([bB])(?:/s|ps)", re.ASCII)
_DURATION = re.compile(rf"{_NUMBER}\s*(ns|us|µs|μs|ms|s|m|h)?")


class UnitError(SandboxError, ValueError):
    """A quantity that cannot be read; the text says what can."""


def parse_rate_bytes_per_s(text: str) -> float:
    """Bytes/s of `50MB/s` (bytes) or `400Gb/s` (bits); 0.0, the page's word for no limit, of `unlimited`."""
    if text.strip().lower() == "unlimited":
        return 0.0
    match = _RATE.fullmatch(text.strip())
    if match is None:
        raise UnitError(
            f"bandwidth {text!r}: give a number, k, M, G or T (or Ki, Mi, Gi, Ti), B for bytes or b for bits, and /s, "
            "like 50MB/s or 400Gb/s; or unlimited"
        )
    factor = (_PREFIX | _BINARY)[match[2]] / (8 if match[3] == "b" else 1)
    rate = float(match[1]) * factor
    if not 0 < rate < math.inf:
        raise UnitError(f"bandwidth {text!r}: must be above zero; `unlimited` takes a limit away")
    return rate


def parse_seconds(text: str, *, unit_needed: bool = True) -> float:
    """Seconds of `20us`, `5ms`, `1.5s`, `2m`; a bare `0` always, any bare number of seconds unless unit_needed."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or (match[2] is None and unit_needed and float(match[1]) != 0):
        raise UnitError(f"time {text!r}: give a number and ns, us, ms, s, m or h, like 20us or 5ms")
    return float(match[1]) * _SECONDS[match[2] or "s"]
