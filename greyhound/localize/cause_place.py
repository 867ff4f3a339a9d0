"""One component in a healthy and a slow time, and the hints that rules make of it."""

from collections.abc import Callable
from dataclasses import dataclass

from greyhound.localize.cause_evidence import Evidence

_SHARE_MORE, _SHARE_LEAST = 0.05, 0.1  # of the time
TIMES_MORE = 3.0
QUOTA = "quota"
COUNTED_WEIGHT = 0.1
"""Of counters and flags that don't say how much time was lost."""


@dataclass(frozen=True)
class Hint:
    """What points to a cause: `kind` (model.KINDS) of the component `name` in `scope` (node, rank, gpu, nic).

    `weight`, 0 to 1: the share of speed or time that it may account for; a guess where counters don't tell.
    `by` is QUOTA where that is what shows it.
    """

    kind: str
    scope: str
    name: str
    weight: float
    text: str
    by: str = ""


@dataclass(frozen=True)
class Place:
    """One component in both times; a figure is None where it isn't known."""

    scope: str
    name: str
    slow: Evidence
    before: Evidence | None

    def now(self, field: str) -> float | None:
        return self.slow.get(self.scope, self.name, field)

    def then(self, field: str) -> float | None:
        return self.before.get(self.scope, self.name, field) if self.before else None

    def more(self, field: str, least: float, times: float = 1.0) -> float | None:
        """The figure, if it is at least `least` and so many times what it was, or that isn't known."""
        now, then = self.now(field), self.then(field)
        return now if now is not None and now >= least and now >= times * (then or 0.0) else None

    def risen(self, field: str) -> float | None:
        """A share of the time, if it is large and grew."""
        now, then = self.now(field), self.then(field) or 0.0
        return now if now is not None and now >= _SHARE_LEAST and now - then >= _SHARE_MORE else None

    def before_text(self, field: str, shown: Callable[[float], str]) -> str:
        then = self.then(field)
        return f", {shown(then)} before" if then is not None else ", before n/a"

    def hint(self, kind: str, weight: float, text: str, by: str = "") -> Hint:
        return Hint(kind, self.scope, self.name, min(max(weight, 0.0), 1.0), text, by)


def percent(share: float) -> str:
    return f"{share:.0%}"


def mhz(value: float) -> str:
    return f"{value:,.0f} MHz"


def a_second(value: float) -> str:
    return f"{value:,.0f} a second" if value >= 10 or value == 0 else f"{value:.2g} a second"
