"""How long transfers take once all members have come, by communicator, and which communicators are slow.

The member that comes last to a call waits for nobody, so the shortest of the members' times is the transfer itself: no
clock is compared. For point-to-point pairs a send and its receive are the two members.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from greyhound.localize.clocks import Clocks
from greyhound.localize.groups import Group
from greyhound.localize.model import RankProfile
from greyhound.localize.pairs import pair_transfers
from greyhound.localize.stats import error, level, spread, with_prior
from greyhound.localize.table import SYMMETRIC, Calls, Floats, instances_of, iterations_of

_FEW = 3  # transfers of a class below which it isn't compared

Class = tuple[int, int]
"""Operation and bytes."""


@dataclass(frozen=True)
class Timing:
    """Transfers of one class on one channel: level and standard error in seconds, how many an iteration."""

    level_s: float
    error_s: float
    per_iteration: float


@dataclass(frozen=True)
class Channel:
    """What transfers are measured on: a communicator's members (`pair` False), or two ranks that exchange."""

    members: tuple[int, ...]
    kind: tuple[object, ...]
    pair: bool
    timings: dict[Class, Timing] = field(default_factory=dict)

    @property
    def iteration_s(self) -> float:
        """Seconds of an iteration that its transfers take."""
        return sum(timing.level_s * timing.per_iteration for timing in self.timings.values())


def iterations_spanned(profiles: Sequence[RankProfile], calls: Calls) -> Floats:
    """How many iterations each rank's calls cover: more than the whole ones, since they begin and end within some."""
    count = len(profiles)
    first, last = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(first, calls.rank, calls.entry)
    np.maximum.at(last, calls.rank, calls.end)
    whole = np.array([max(len(profile.iteration_s), 1) for profile in profiles], dtype=np.float64)
    usual_s = np.array([level(iterations_of(profile).total) for profile in profiles])
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        spanned = (last - first) / usual_s
    return np.where(np.isfinite(spanned), np.clip(spanned, whole, 2 * whole), whole)


def _timings(durations: Floats, classes: Sequence[Class], iterations: float, sampled: float) -> dict[Class, Timing]:
    by_class: dict[Class, list[float]] = defaultdict(list)
    for duration, key in zip(durations.tolist(), classes, strict=True):
        by_class[key].append(duration)
    found = {}
    for key, values in by_class.items():
        if len(values) >= _FEW:
            seconds = np.array(values)
            level_s = level(seconds)
            deviation = with_prior(spread(seconds), len(values) - 1)
            found[key] = Timing(level_s, level_s * error(deviation, len(values)), sampled * len(values) / iterations)
    return found


def _sampled(seq: Floats) -> float:
    """Calls that there were for each one that was timed: numbers that are missing weren't."""
    distinct = np.unique(seq)
    return float(distinct[-1] - distinct[0] + 1) / len(distinct)


def collective_channels(profiles: Sequence[RankProfile], calls: Calls, groups: dict[int, Group]) -> list[Channel]:
    """A channel for each communicator whose collectives were timed by all its members."""
    mine = calls.where(np.isin(calls.op, SYMMETRIC))
    found = instances_of(mine)
    if len(found.first) == 0:
        return []
    head = found.order[found.first]
    shortest = np.minimum.reduceat(mine.duration[found.order], found.first)
    comm, op, size, seq = mine.comm[head], mine.op[head], mine.bytes[head], mine.seq[head]
    spanned = iterations_spanned(profiles, calls)
    order = np.argsort(comm, kind="stable")
    edges = np.flatnonzero(np.r_[True, np.diff(comm[order].view(np.int64)) != 0, True])
    channels = []
    for begin, end in pairwise(edges.tolist()):
        rows = order[begin:end]
        group = groups.get(int(comm[rows[0]]))
        if group is None or group.size < 2 or not group.complete:
            continue
        whole = rows[found.members[rows] == group.size]
        if len(whole) < _FEW:
            continue
        members = tuple(group.members[place] for place in sorted(group.members))
        classes = list(zip(op[whole].tolist(), size[whole].tolist(), strict=True))
        covered = float(spanned[list(members)].max())
        timings = _timings(shortest[whole], classes, covered, _sampled(seq[whole]))
        channels.append(Channel(members, group.kind, False, timings))
    return [channel for channel in channels if channel.timings]


def pair_channels(
    profiles: Sequence[RankProfile], calls: Calls, groups: dict[int, Group], clocks: Clocks
) -> list[Channel]:
    """A channel for each two ranks that send to one another."""
    channels = []
    spanned = iterations_spanned(profiles, calls)
    for (one, other), found in pair_transfers(profiles, calls, groups, clocks).items():
        apart = profiles[one].node != profiles[other].node
        timings = _timings(found.seconds, found.classes, float(max(spanned[one], spanned[other])), found.made)
        if timings:
            channels.append(Channel((one, other), ("pair", apart), True, timings))
    return channels
