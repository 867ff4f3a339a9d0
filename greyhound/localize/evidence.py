"""All that a verdict is made from, computed once from the profiles."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property

from greyhound.localize.clocks import Clocks, clocks_of, without_leaps
from greyhound.localize.groups import Group, equals, groups_of
from greyhound.localize.model import RankProfile
from greyhound.localize.stats import level
from greyhound.localize.table import Calls, Iterations, calls_of, iterations_of
from greyhound.localize.transfer import Channel, collective_channels, pair_channels
from greyhound.localize.waits import Wait, waits_of


@dataclass(frozen=True)
class Evidence:
    """Profiles of ranks that finished iterations, and what follows from them; ranks are indices into `profiles`."""

    profiles: tuple[RankProfile, ...]
    iterations: tuple[Iterations, ...]
    calls: Calls
    groups: dict[int, Group]
    clocks: Clocks
    equals: tuple[Hashable, ...]
    channels: tuple[Channel, ...]
    waits: dict[int, list[Wait]]
    timed: bool
    notes: tuple[str, ...]

    @cached_property
    def iteration_s(self) -> float:
        """Seconds of an iteration: the median over ranks of each one's median; NaN without any."""
        levels = sorted(level(rows.total) for rows in self.iterations)
        return levels[len(levels) // 2] if levels else float("nan")


def evidence_of(profiles: Sequence[RankProfile]) -> Evidence:
    """Prepare profiles; those without a sane iteration are left out, and of GPU and host times the rarer kind."""
    timed = 2 * sum(profile.timed for profile in profiles) >= len(profiles) > 0
    rows = [(profile, iterations_of(profile)) for profile in profiles if profile.timed == timed]
    kept = [(profile, iterations) for profile, iterations in rows if len(iterations)]
    notes = [f"{len(profiles) - len(kept)} of {len(profiles)} ranks' profiles can't be used"]
    usable = tuple(profile for profile, _ in kept)
    calls = calls_of(usable)
    clocks = clocks_of(usable, calls)
    calls = without_leaps(usable, calls, clocks)
    groups = groups_of(usable, calls)
    channels: list[Channel] = []
    if timed:
        channels = [*collective_channels(usable, calls, groups), *pair_channels(usable, calls, groups, clocks)]
    return Evidence(
        usable,
        tuple(iterations for _, iterations in kept),
        calls,
        groups,
        clocks,
        tuple(equals(usable, groups)),
        tuple(channels),
        waits_of(calls, groups, [len(row) for _, row in kept]) if timed else {},
        timed,
        (*clocks.notes, *(notes if len(kept) < len(profiles) else ())),
    )
