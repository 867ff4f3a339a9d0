"""Options of Greyhound: one table, five sources, each stronger than the one before.

Defaults < /etc/greyhound/greyhound.toml < plugstack arguments < environment GREYHOUND < command line
(docs/interfaces.md 3). A bad value in the file or the environment is warned about once and ignored, since a
stale variable must not refuse every srun; on the command line it is refused.
"""

import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

SITE_FILE = Path("/etc/greyhound/greyhound.toml")
MODES = ("on", "observe", "off")
DEFAULT_RECORD_DIR = "~/.local/state/greyhound"
DEFAULT_MUTE_FILE = "/etc/greyhound/mute"


class OptionError(ValueError):
    """A mode, key or value that isn't one of ours; the message names the text and what is allowed."""


@dataclass(frozen=True)
class Settings:
    """What a job is watched with. `threshold` is a share (0.10 = 10 % slower), `warmup` a number of iterations.

    `freeze` (a pause to find the culprit: never, optin) and `s4` (restart elsewhere: never, allow) are for the actions.
    `max_mode` is the site's ceiling; while `mute_file` exists nothing is recorded.
    """

    mode: str = "on"
    threshold: float = 0.10
    warmup: int = 10
    record_dir: str = DEFAULT_RECORD_DIR
    redis_server: str = "redis-server"
    freeze: str = "never"
    s4: str = "allow"
    max_mode: str = "on"
    mute_file: str = DEFAULT_MUTE_FILE

    @property
    def record_path(self) -> Path:
        """The record directory with `~` expanded."""
        return Path(self.record_dir).expanduser()


def _number(text: str, low: float, high: float) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None
    if not low <= value <= high:
        raise ValueError(f"{text!r} is outside {low:g}..{high:g}")
    return value


def _threshold(text: str) -> float:
    return _number(text, 0.02, 1.0)


def _warmup(text: str) -> int:
    value = _number(text, 5, 1000)
    if value != int(value):
        raise ValueError(f"{text!r} is not a whole number")
    return int(value)


def _absolute(text: str) -> str:
    if not text.startswith("/"):
        raise ValueError(f"{text!r} is not an absolute path")
    return text


def _one_of(*allowed: str) -> Callable[[str], str]:
    def check(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"{text!r} is none of {', '.join(allowed)}")
        return text

    return check


@dataclass(frozen=True)
class OptionKey:
    """One key of `--greyhound=MODE,key=value`: how it is read and what is allowed, for messages."""

    parse: Callable[[str], float | int | str]
    allowed: str
    site_only: bool = False


OPTION_KEYS: dict[str, OptionKey] = {
    "threshold": OptionKey(_threshold, "0.02..1.0"),
    "warmup": OptionKey(_warmup, "5..1000"),
    "record_dir": OptionKey(_absolute, "an absolute path"),
    "freeze": OptionKey(_one_of("never", "optin"), "never|optin"),
    "s4": OptionKey(_one_of("never", "allow"), "never|allow"),
    "redis_server": OptionKey(str, "a path", site_only=True),
    "max_mode": OptionKey(_one_of(*MODES), "|".join(MODES), site_only=True),
    "mute_file": OptionKey(_absolute, "an absolute path", site_only=True),
}


def _user_keys() -> str:
    return ", ".join(f"{key}={option.allowed}" for key, option in OPTION_KEYS.items() if not option.site_only)


def parse_mode(text: str) -> str:
    """One of MODES, or OptionError."""
    if text not in MODES:
        raise OptionError(f"unknown mode {text!r}; use one of {', '.join(MODES)}")
    return text


def parse_option(text: str, site: bool = False) -> tuple[str, float | int | str]:
    """`key=value` as (key, checked value); OptionError names the offending text and the allowed ones."""
    key, equals, value = text.partition("=")
    option = OPTION_KEYS.get(key)
    if option is None or (option.site_only and not site):
        raise OptionError(f"unknown option {key!r} in {text!r}; use {_user_keys()}")
    if not equals:
        raise OptionError(f"option {key!r} has no value; use {key}={option.allowed}")
    try:
        return key, option.parse(value)
    except ValueError as error:
        raise OptionError(f"bad {text!r}: {error}; use {key}={option.allowed}") from None


def parse_greyhound(text: str) -> dict[str, float | int | str]:
    """`MODE[,key=value...]` as a dict with the key `mode` and the options given; OptionError if any part is bad."""
    mode, *options = text.split(",")
    return {"mode": parse_mode(mode), **dict(parse_option(option) for option in options)}


def lowest(mode: str, ceiling: str) -> str:
    """The lower of two modes."""
    return max(mode, ceiling, key=MODES.index)


def under_ceiling(settings: Settings) -> tuple[Settings, str]:
    """Settings with the mode lowered to the site's, and a line where that changed it."""
    mode = lowest(settings.mode, settings.max_mode)
    if mode == settings.mode:
        return settings, ""
    said = f"{settings.mode} was asked for, the site allows {mode} (max_mode={settings.max_mode})"
    return replace(settings, mode=mode), said


def apply(settings: Settings, values: Mapping[str, float | int | str]) -> Settings:
    """Settings with already checked values laid over them."""
    return replace(settings, **values)  # type: ignore[arg-type]


def apply_leniently(settings: Settings, text: str, source: str) -> tuple[Settings, list[str]]:
    """Lay `MODE[,key=value...]` over the settings, skipping bad parts; each gives a warning that names the source."""
    warnings = []
    mode, *options = text.split(",")
    try:
        settings = replace(settings, mode=parse_mode(mode))
    except OptionError as error:
        warnings.append(f"{source}: {error}; ignored")
    for option in options:
        try:
            key, value = parse_option(option)
            settings = apply(settings, {key: value})
        except OptionError as error:
            warnings.append(f"{source}: {error}; ignored")
    return settings, warnings


def load_site(settings: Settings, path: Path = SITE_FILE) -> tuple[Settings, list[str]]:
    """Lay the site's file over the settings; a missing file is normal, a bad one or a bad value is a warning."""
    try:
        table = tomllib.loads(path.read_text())
    except FileNotFoundError:
        return settings, []
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        # It may hold a ceiling, and one that can't be read isn't ignored (spank/ceiling.c does the same).
        text = f"{path}: {error}; the file is ignored, and max_mode=off holds until it can be read"
        return replace(settings, max_mode=MODES[-1]), [text]
    warnings = []
    for key, value in table.items():
        try:
            if key == "mode":
                settings = replace(settings, mode=parse_mode(str(value)))
            else:
                name, checked = parse_option(f"{key}={value}", site=True)
                settings = apply(settings, {name: checked})
        except OptionError as error:
            # A ceiling that can't be read isn't ignored (spank/ceiling.c does the same).
            is_ceiling = key == "max_mode"
            settings = replace(settings, max_mode=MODES[-1]) if is_ceiling else settings
            warnings.append(f"{path}: {error}; {'taken as max_mode=off until then' if is_ceiling else 'ignored'}")
    return settings, warnings


def from_environment(
    environ: Mapping[str, str] | None = None, site_file: Path = SITE_FILE
) -> tuple[Settings, list[str]]:
    """Defaults, the site's file and GREYHOUND together, with the warnings they gave."""
    environ = os.environ if environ is None else environ
    settings, warnings = load_site(Settings(), site_file)
    text = environ.get("GREYHOUND")
    if text:
        settings, more = apply_leniently(settings, text, "environment GREYHOUND")
        warnings += more
    return settings, warnings


def native_dir() -> Path:
    """Where the built C parts lie (greyhound/_native beside this file)."""
    return Path(__file__).resolve().parent / "_native"
