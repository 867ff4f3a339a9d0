"""Channels whose transfers take longer: than comparable ones, or than their own in the reference."""

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from greyhound.localize.limits import Limits
from greyhound.localize.stats import hardly_by_chance, others_low_median
from greyhound.localize.transfer import Channel, Class, Timing


@dataclass(frozen=True)
class Slower:
    """By how much a channel's transfers of an iteration exceed what they should take. `certainty`: the
    excess over what chance may do (1: just beyond that); `slow_classes`: which transfers did."""

    channel: Channel
    excess_s: float
    ratio: float
    certainty: float
    slow_classes: tuple[Class, ...]
    than: str

    def slow(self, limits: Limits, iteration_s: float) -> bool:
        """Whether that is slow beyond doubt."""
        return (
            self.ratio >= limits.transfer_ratio
            and self.excess_s >= limits.iteration_share * iteration_s
            and self.certainty >= 1.0
        )


_FREEDOM = 10.0  # of the estimated spreads: a channel has some calls of each class

Base = dict[Class, tuple[float, float]]
"""What a class should take, and the error of that, in seconds."""


def _slower(channel: Channel, base: Base, than: str, hardly: float, limits: Limits) -> Slower | None:
    should = took = variance = 0.0
    slow = []
    for key, (base_s, error_s) in base.items():
        timing = channel.timings[key]
        should += base_s * timing.per_iteration
        took += timing.level_s * timing.per_iteration
        variance += (timing.per_iteration * float(np.hypot(timing.error_s, error_s))) ** 2
        if timing.level_s >= limits.transfer_ratio * base_s:
            slow.append(key)
    if should <= 0 or variance <= 0:
        return None
    excess = took - should
    deviation = math.sqrt(variance + (limits.natural * should) ** 2)
    return Slower(channel, excess, took / should, excess / (deviation * hardly), tuple(slow), than)


def against_equals(channels: Sequence[Channel], limits: Limits) -> list[Slower]:
    """Each channel against the low median of the others of its kind, class by class."""
    bases: list[Base] = [{} for _ in channels]
    for (_, key), rows in _by_class(channels).items():
        if len(rows) > 1:
            timings = [channels[row].timings[key] for row in rows]
            base = others_low_median(np.array([timing.level_s for timing in timings]))
            error = float(np.median([timing.error_s for timing in timings]))
            for row, seconds in zip(rows, base.tolist(), strict=True):
                bases[row][key] = (seconds, error)
    return _all_slower(channels, bases, "equals", limits)


def _by_class(channels: Sequence[Channel]) -> dict[tuple[Hashable, Class], list[int]]:
    found: dict[tuple[Hashable, Class], list[int]] = defaultdict(list)
    for row, channel in enumerate(channels):
        for key in channel.timings:
            found[channel.kind, key].append(row)
    return found


def _all_slower(channels: Sequence[Channel], bases: list[Base], than: str, limits: Limits) -> list[Slower]:
    hardly = hardly_by_chance(_FREEDOM, len(channels), limits)
    found = (
        _slower(channel, base, than, hardly, limits) for channel, base in zip(channels, bases, strict=True) if base
    )
    return [slower for slower in found if slower is not None]


def against_reference(
    channels: Sequence[Channel],
    before: Sequence[Channel],
    name: Callable[[Channel], Hashable],
    name_before: Callable[[Channel], Hashable],
    limits: Limits,
) -> list[Slower]:
    """Each channel against itself in the reference; `name` says by what a channel is known in both."""
    known: dict[Hashable, dict[Class, Timing]] = defaultdict(dict)
    for channel in before:
        known[name_before(channel)].update(channel.timings)
    bases: list[Base] = []
    for channel in channels:
        earlier = known.get(name(channel), {})
        bases.append({key: (earlier[key].level_s, earlier[key].error_s) for key in channel.timings if key in earlier})
    return _all_slower(channels, bases, "reference", limits)
