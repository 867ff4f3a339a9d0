"""Durations and points in time as Slurm prints them and as its users type them: two grammars, not one.

`4:00` printed by sacct or squeue is four minutes, and so it is for `sbatch --time`; but `4` printed is never, and typed
is four minutes; `1-2` typed is a day and two hours. (sacct(1), squeue(1), sbatch(1) --time)
"""

import re
from datetime import datetime, timedelta
from enum import Enum

DAY_S, HOUR_S, MINUTE_S = 86_400, 3_600, 60
MAX_DAYS = 36_500

_PRINTED = re.compile(
    r"(?:(?P<days>\d{1,6})-)?(?:(?P<hours>\d{1,4}):)?(?P<minutes>\d{1,2}):(?P<seconds>\d{2})(?:\.(?P<fraction>\d{1,6}))?",
    re.ASCII,
)
_TYPED = (
    re.compile(r"(?P<minutes>\d{1,9})", re.ASCII),
    re.compile(r"(?P<minutes>\d{1,9}):(?P<seconds>\d{1,9})", re.ASCII),
    re.compile(r"(?P<hours>\d{1,9}):(?P<minutes>\d{1,9}):(?P<seconds>\d{1,9})", re.ASCII),
    re.compile(
        r"(?P<days>\d{1,6})-(?P<hours>\d{1,9})(?::(?P<minutes>\d{1,9})(?::(?P<seconds>\d{1,9}))?)?",
        re.ASCII,
    ),
)
_UNITS_S = {"days": DAY_S, "hours": HOUR_S, "minutes": MINUTE_S, "seconds": 1}
_NO_TIME = frozenset({"", "Unknown", "None", "N/A", "NONE"})
_AGO = re.compile(r"now-(\d{1,9})(seconds|second|minutes|minute|hours|hour|days|day|weeks|week)?", re.ASCII)
_MOMENTS = ("%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M")


class TimeTextError(ValueError):
    """Text that is no duration or no point in time; says which forms are."""


class NoDuration(Enum):
    """What Slurm prints instead of a duration."""

    UNLIMITED = "UNLIMITED"
    PARTITION_LIMIT = "Partition_Limit"
    UNKNOWN = "unknown"


_WORDS = {
    "unlimited": NoDuration.UNLIMITED,
    "infinite": NoDuration.UNLIMITED,
    "partition_limit": NoDuration.PARTITION_LIMIT,
}
_UNKNOWN = frozenset({"", "unknown", "none", "n/a", "invalid", "not_set"})


def _seconds(match: re.Match[str]) -> int:
    groups = match.groupdict()
    return sum(int(groups.get(name) or 0) * unit_s for name, unit_s in _UNITS_S.items())


def parse_printed(text: str) -> float | NoDuration:
    """Seconds of `1-02:03:04`, `02:03:04`, `03:04.567`, or what stands in its place; TimeTextError for other text."""
    word = text.strip().lower()
    if word in _WORDS or word in _UNKNOWN:
        return _WORDS.get(word, NoDuration.UNKNOWN)
    match = _PRINTED.fullmatch(text.strip())
    if match is None or int(match["minutes"]) > 59 or int(match["seconds"]) > 59:
        raise TimeTextError(f"{_short(text)} is no duration of Slurm's: [DAYS-]HOURS:MINUTES:SECONDS")
    fraction = match["fraction"]
    return _seconds(match) + (float(f"0.{fraction}") if fraction else 0.0)


def parse_typed(text: str) -> int | NoDuration:
    """Seconds of a duration as users type it for `sbatch --time`; TimeTextError names the forms."""
    if text.strip().lower() in ("unlimited", "infinite", "-1"):
        return NoDuration.UNLIMITED
    for form in _TYPED:
        match = form.fullmatch(text.strip())
        if match is not None and _seconds(match) <= MAX_DAYS * DAY_S:
            return _seconds(match)
    raise TimeTextError(
        f"{_short(text)} is no duration: MINUTES[:SECONDS], HOURS:MINUTES:SECONDS, DAYS-HOURS[:MINUTES[:SECONDS]]"
    )


def print_duration(seconds: float) -> str:
    """Slurm's own form, `[DAYS-]HH:MM:SS`, rounded down."""
    whole = int(seconds)
    days, rest = divmod(whole, DAY_S)
    clock = f"{rest // HOUR_S:02}:{rest % HOUR_S // MINUTE_S:02}:{rest % MINUTE_S:02}"
    return f"{days}-{clock}" if days else clock


def parse_moment(text: str) -> datetime | None:
    """A printed point in time, local as Slurm prints it; None for `Unknown` and the like; TimeTextError otherwise."""
    stripped = text.strip()
    if stripped in _NO_TIME:
        return None
    try:
        return datetime.strptime(stripped, _MOMENTS[0])
    except ValueError:
        raise TimeTextError(f"{_short(text)} is no point in time of Slurm's: YYYY-MM-DDTHH:MM:SS") from None


def parse_typed_moment(text: str, now: datetime) -> datetime:
    """`2026-11-30`, `2026-11-30T08:00[:00]`, `now`, `now-7days`, `today`, `yesterday`; TimeTextError otherwise."""
    word = text.strip().lower()
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    named = {"now": now, "today": midnight, "yesterday": midnight - timedelta(days=1)}
    if word in named:
        return named[word]
    ago = _AGO.fullmatch(word)
    if ago is not None:
        return _before(now, int(ago[1]), (ago[2] or "seconds").rstrip("s"), text)
    for form in _MOMENTS:
        try:
            return datetime.strptime(text.strip(), form)
        except ValueError:
            continue
    raise TimeTextError(
        f"{_short(text)} is no point in time: give 2026-11-30, 2026-11-30T08:00, now-7days, today or yesterday"
    )


def _before(now: datetime, count: int, unit: str, text: str) -> datetime:
    unit_s = {"second": 1, "minute": MINUTE_S, "hour": HOUR_S, "day": DAY_S, "week": 7 * DAY_S}[unit]
    try:
        return now - timedelta(seconds=count * unit_s)
    except OverflowError:
        raise TimeTextError(f"{_short(text)} lies before all time: give fewer") from None


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
