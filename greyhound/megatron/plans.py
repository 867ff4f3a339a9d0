"""What a plan may say, checked field by field; anything else is ignored and said once."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

VERSION = 1
MOST_PLANS = 1 << 53


@dataclass(frozen=True)
class Layout:
    """What a split must fit: replicas, the micro-batches of all of them together, and the multiple that 1F1B asks."""

    replicas: int
    total: int
    multiple: int = 1

    @property
    def even(self) -> tuple[int, ...]:
        """The split of a training without Greyhound."""
        return (self.total // self.replicas,) * self.replicas


@dataclass(frozen=True)
class Plan:
    """Micro-batches by data-parallel rank; `number` grows with each plan of the master."""

    number: int
    microbatches: tuple[int, ...]


class PlanRefusedError(ValueError):
    """A plan that this training can't follow; the text says why."""


def _whole(value: Any, least: int, most: int, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise PlanRefusedError(f"{what} is {value!r:.40}; it must be a whole number from {least} to {most}")
    return value


def parse(raw: Any, layout: Layout) -> Plan:
    """`{"v":1,"number":n,"microbatches":[...]}` as a plan for `layout`. Raises PlanRefusedError."""
    if not isinstance(raw, Mapping) or raw.get("v") != VERSION:
        raise PlanRefusedError("not a plan of this release")
    number = _whole(raw.get("number"), 1, MOST_PLANS, "its number")
    given = raw.get("microbatches")
    if not isinstance(given, list) or len(given) != layout.replicas:
        raise PlanRefusedError(f"micro-batches {given!r:.80} for {layout.replicas} data-parallel ranks")
    split = tuple(_whole(count, 1, layout.total, "a number of micro-batches") for count in given)
    if sum(split) != layout.total:
        raise PlanRefusedError(f"{sum(split)} micro-batches {list(split)}; an iteration has {layout.total}")
    odd = [count for count in split if count % layout.multiple]
    if odd:
        raise PlanRefusedError(f"{odd[0]} micro-batches; this pipeline needs multiples of {layout.multiple}")
    return Plan(number, split)
