"""Values from records, their users' files: whatever stands there becomes something that can be printed. Pure."""

from datetime import datetime

LATEST_S = 32_503_680_000.0  # the year 3000: what is later is no time
MOST = 1e15
TEXT_LETTERS = 200
MANY = 100


def epoch_s(value: object) -> float | None:
    """Seconds since the epoch of an event's time, None for what isn't one."""
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    at_s = moment.timestamp() if moment.tzinfo is not None else -1.0
    return at_s if 0.0 <= at_s < LATEST_S else None


def number(value: object) -> float:
    """A finite number, 0.0 for anything else (a bool is none, and NaN is less than nothing)."""
    return float(value) if (type(value) is float or type(value) is int) and -MOST < value < MOST else 0.0


def whole(value: object) -> int | None:
    """A whole number that isn't absurd, None for anything else."""
    return value if type(value) is int and -MOST < value < MOST else None


def text(value: object, most: int = TEXT_LETTERS) -> str:
    """Without what can't be written as UTF-8, and not too long; empty for what is no text."""
    if not isinstance(value, str):
        return ""
    short = value[:most]
    return short if short.isascii() else short.encode(errors="replace").decode()


def texts(value: object, most: int = MANY) -> tuple[str, ...]:
    """The texts of a list, and nothing else of it."""
    return tuple(filter(None, map(text, value[:most]))) if isinstance(value, list) else ()
