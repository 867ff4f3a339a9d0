"""Checks of what comes from outside, field by field: a dataclass's own types say what its fields may be.

`str`, `int`, `float`, `bool`, lists of them and of other dataclasses; `Annotated[T, check]` for anything narrower.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

TEXT_LIMIT = 400
LIST_LIMIT = 4096
REAL_LIMIT = 1e12  # seconds or slow-downs: thirty thousand years; sums and products of such stay finite

T = TypeVar("T")
Check = Callable[[Any], Any]
"""Gives the value, or raises ValueError with what it should have been."""
Fields = Mapping[str, Check]


def text(value: Any) -> str:
    """A string of at most TEXT_LIMIT characters that can be written anywhere."""
    if not isinstance(value, str) or len(value) > TEXT_LIMIT:
        raise ValueError(f"not a text of at most {TEXT_LIMIT} characters")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise ValueError("not valid Unicode: half a surrogate pair")
    return value


def whole(value: Any) -> int:
    """An integer that 64 bits hold, with or without a sign."""
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**64:
        raise ValueError("not a whole number")
    return value


def real(value: Any) -> float:
    """A number within REAL_LIMIT."""
    # The comparison holds neither for NaN nor for the infinities, and takes integers of any length.
    if isinstance(value, bool) or not isinstance(value, int | float) or not -REAL_LIMIT <= value <= REAL_LIMIT:
        raise ValueError(f"not a number from -{REAL_LIMIT:g} to {REAL_LIMIT:g}")
    return float(value)


def flag(value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise ValueError("not true or false")
    return value


def one_of(*allowed: str) -> Callable[[Any], str]:
    """One of these texts."""

    def check(value: Any) -> str:
        if value not in allowed:
            raise ValueError(f"not one of {', '.join(allowed)}")
        return str(value)

    return check


def list_of(check: Callable[[Any], T], limit: int = LIST_LIMIT) -> Callable[[Any], list[T]]:
    """A list of at most `limit` items that each pass."""

    def check_list(value: Any) -> list[T]:
        if not isinstance(value, list) or len(value) > limit:
            raise ValueError(f"not a list of at most {limit:,} items")
        return [check(item) for item in value]

    return check_list


def checked(table: Fields, value: Any) -> dict[str, Any]:
    """The fields of the table, of an object that may hold others as well; ValueError names the first that is wrong."""
    if not isinstance(value, dict):
        raise ValueError("not an object")
    found = {}
    for name, check in table.items():
        if name not in value:
            raise ValueError(f"field {name!r} is missing")
        try:
            found[name] = check(value[name])
        except ValueError as error:
            raise ValueError(f"field {name!r}: {error}") from None
    return found


_CHECKS: Mapping[Any, Check] = {str: text, int: whole, float: real, bool: flag}


def check_of(wanted: Any) -> Check:
    """The check that a type stands for; TypeError for a type that none is known for."""
    if get_origin(wanted) is Annotated:
        check: Check = get_args(wanted)[1]
        return check
    if get_origin(wanted) is list:
        return list_of(check_of(get_args(wanted)[0]))
    if is_dataclass(wanted):
        made: Any = wanted
        table = table_of(made)
        return lambda value: made(**checked(table, value))
    if wanted not in _CHECKS:
        raise TypeError(f"no check for {wanted}")
    return _CHECKS[wanted]


def table_of(dataclass: type[Any]) -> Fields:
    """Name -> check, of all fields of a dataclass."""
    hints = get_type_hints(dataclass, include_extras=True)
    return {field.name: check_of(hints[field.name]) for field in fields(dataclass)}
