"""What must be known of all dumps before the first event of a timeline can be written: iterations, clocks, roles.

A dump is read, looked through and let go of; it is read again when its events are written.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from greyhound.detect.dumped import dumped_iterations
from greyhound.detect.period import Iteration
from greyhound.localize.clocks import Clocks, clocks_of
from greyhound.localize.from_records import NoProfile, RankFacts, Window, build
from greyhound.localize.groups import groups_of
from greyhound.localize.model import RankProfile
from greyhound.localize.table import calls_of
from greyhound.trace.dump import Dump, DumpError
from greyhound.trace.records import timings, top_level

PROFILED_ITERATIONS = 8
MOST_CALLS, LEAST_CALLS, ALL_CALLS = 4000, 200, 400_000  # a rank's, and those of all together
_NEEDED: Mapping[str, type] = dict.fromkeys(
    ("pid", "pid_start", "world_rank", "node_index", "created_ns", "created_realtime_ns"), int
) | {"boot_id": str, "gpu_bus_id": str}
_LAST_NS = 1 << 62
PLAINLY_OFF_S = 1.0
"""Without the GPU's times, clocks are believed to differ from here on: hosts run ahead of each other by less."""


@dataclass(frozen=True)
class Surveyed:
    """One dump, without its calls. Times are CLOCK_MONOTONIC; `wall_ns` is to be added to be the node's wall clock."""

    path: Path
    facts: Mapping[str, Any]
    calls: int
    first_ns: int
    wall_ns: int
    iterations: tuple[tuple[int, int, int], ...]
    profile: RankProfile | None

    @property
    def clock(self) -> str:
        """Processes of one boot of a machine share its clock."""
        return str(self.facts["boot_id"])

    @property
    def process(self) -> tuple[Any, ...]:
        """Who made the calls."""
        return self.clock, self.facts["node_index"], self.facts["pid"], self.facts["pid_start"]


def check(dump: Dump) -> None:
    """DumpError where it names no process, or times that no clock shows."""
    for name, kind in _NEEDED.items():
        value = dump.facts.get(name)
        if type(value) is not kind or (isinstance(value, int) and not -1 <= value < _LAST_NS):
            raise DumpError(f"a damaged dump (its fact {name!r} is {value!r}); record it again")
    if len(dump.records) and int(dump.records["t_ns"].max()) >= _LAST_NS:
        raise DumpError("a damaged dump (impossible times); record it again")


def survey(path: Path, dump: Dump, clock: int, most_calls: int) -> Surveyed:
    """Look through a checked dump with at least one call; `clock` is a number of its machine."""
    facts = dump.facts
    wall_ns = int(facts["created_realtime_ns"]) - int(facts["created_ns"])
    iterations = _last_found(dumped_iterations(dump))
    ends = [(each.index, each.end_ns, round(each.seconds * 1e9)) for each in iterations]
    return Surveyed(
        path=path,
        facts=facts,
        calls=len(dump.records),
        first_ns=int(dump.records["t_ns"].min()),
        wall_ns=wall_ns,
        iterations=tuple(ends),
        profile=_profile(dump, [end_ns for _, end_ns, _ in ends], clock, wall_ns, most_calls),
    )


def _last_found(found: Iterable[Iteration]) -> list[Iteration]:
    """Where a longer period is found later, its iterations stand for those that were taken for whole ones before."""
    kept: list[Iteration] = []
    for each in found:
        while kept and kept[-1].pattern != each.pattern and kept[-1].end_ns > each.end_ns - each.seconds * 1e9:
            kept.pop()
        kept.append(each)
    return kept


def _profile(dump: Dump, ends_ns: Sequence[int], clock: int, wall_ns: int, most_calls: int) -> RankProfile | None:
    """Of the last iterations; None where the period isn't known."""
    last = np.array(ends_ns[-(PROFILED_ITERATIONS + 1) :], dtype=np.int64)
    if len(last) < 2:
        return None
    facts = dump.facts
    timed = timings(dump.records)
    calls = top_level(dump.records)
    within = (calls["t_ns"] > np.uint64(last[0])) & (calls["t_ns"] <= np.uint64(last[-1]))
    window = Window(calls[within], timed[timed["start_ns"] > np.uint64(last[0])], dump.comms, last, wall_ns)
    who = RankFacts(clock, str(facts["pid"]), int(facts["world_rank"]), str(facts["gpu_bus_id"]), "")
    try:
        return build(who, window, most_calls)
    except NoProfile:
        return None


def calls_a_rank(ranks: int) -> int:
    """How many calls of each rank the clocks and roles are found from."""
    return max(LEAST_CALLS, min(MOST_CALLS, ALL_CALLS // max(ranks, 1)))


@dataclass(frozen=True)
class NodeClock:
    """A machine's clock: `shift_ns` makes its CLOCK_MONOTONIC the timeline's wall clock.

    `offset_s`: how far it is ahead of the first machine's as the collectives show it, None where they don't.
    """

    shift_ns: int
    offset_s: float | None
    uncertainty_s: float
    applied: bool
    words: str


def node_clocks(found: Sequence[Surveyed]) -> dict[str, NodeClock]:
    """By boot id; the first one's wall clock is the timeline's."""
    numbers = {clock: number for number, clock in enumerate(dict.fromkeys(row.clock for row in found))}
    walls = {clock: round(median(row.wall_ns for row in found if row.clock == clock)) for clock in numbers}
    profiles = [row.profile for row in found if row.profile is not None]
    estimated = clocks_of(profiles, calls_of(profiles)) if profiles and len(numbers) > 1 else Clocks({}, {})
    timed = bool(profiles) and all(profile.timed for profile in profiles)
    return {
        clock: _node_clock(
            walls[clock], estimated.offset_s.get(number), estimated.uncertainty_s.get(number, 0.0), timed, number
        )
        for clock, number in numbers.items()
    }


def _node_clock(wall_ns: int, offset_s: float | None, error_s: float, timed: bool, number: int) -> NodeClock:
    if number == 0:
        return NodeClock(wall_ns, 0.0, 0.0, True, "the timeline's clock")
    if offset_s is None:
        return NodeClock(
            wall_ns, None, 0.0, False, "its own clock: no collective shared with the others shows how it differs"
        )
    shown = f"{offset_s * 1e3:+.3f} ms (± {error_s * 1e3:.3f}) from shared collectives"
    if timed or abs(offset_s) > max(PLAINLY_OFF_S, 3 * error_s):
        return NodeClock(wall_ns - round(offset_s * 1e9), offset_s, error_s, True, f"{shown}, taken off")
    # Without the GPU's times a late rank looks like a late clock: taking it off would hide the straggler.
    return NodeClock(wall_ns, offset_s, error_s, False, f"{shown} by the hosts' times only, not taken off")


def roles(found: Sequence[Surveyed]) -> dict[int, str]:
    """By communicator; those that traffic doesn't tell are left out."""
    profiles = [row.profile for row in found if row.profile is not None]
    groups = groups_of(profiles, calls_of(profiles)) if profiles else {}
    return {comm: group.role for comm, group in groups.items() if group.role != "unknown"}
