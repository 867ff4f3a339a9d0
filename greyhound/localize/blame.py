"""From slow ranks and slow channels to components: of which kind, which of them are one, and what each costs."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from greyhound.localize.arrivals import LAST_MOSTLY, last_shares
from greyhound.localize.evidence import Evidence
from greyhound.localize.limits import Limits
from greyhound.localize.own_work import Growth
from greyhound.localize.pairs import BOTH, DOWN, UP
from greyhound.localize.slow_channels import Slower
from greyhound.localize.stats import level, low_median
from greyhound.localize.waits import agrees

_BOUNDARY = 0.6  # of the growth that lies in the gap between iterations, from where on it is reading or writing data
_EVEN = 0.5  # of the middle rank's growth that those below it have, if all are slow alike
_HOST = 0.5  # of the growth that lies before the host's call, from where on it is the host's


@dataclass(frozen=True)
class Cause:
    """A candidate: `cost_s` an iteration; `path`: causes of one path are waited for together, so the longest counts.

    `ranks` are indices of profiles; no ranks: everybody alike, no node is blamed. `sure`: 0 to 1.
    """

    kind: str
    ranks: tuple[int, ...]
    cost_s: float
    ratio: float
    path: object
    sure: float
    reasons: tuple[str, ...]


def kind_of(growth: Growth) -> str:
    """gpu, cpu or input, by where in the own time the growth lies."""
    own_s = max(growth.own_s, 1e-12)
    if growth.host_s < _HOST * own_s:
        return "gpu"
    return "input" if min(growth.boundary_s, growth.host_s) >= _BOUNDARY * own_s else "cpu"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"


_PLACES = {
    "gpu": "on the GPU",
    "cpu": "before the host's calls",
    "input": "on the host, in the gap between two iterations",
}


def _own_reasons(evidence: Evidence, growth: Growth, kind: str, waiting: bool | None) -> tuple[str, ...]:
    rank = evidence.profiles[growth.rank].rank
    than = "that of ranks with the same work" if growth.than == "equals" else "its own when the job was healthy"
    reasons = [
        f"rank {rank}: own time {growth.ratio:.2f} x {than}, {_milliseconds(growth.own_s)} more an iteration, "
        f"{_PLACES[kind]}"
    ]
    if waiting:
        reasons.append(f"rank {rank} waits less in its collectives than the other members")
    return tuple(reasons)


def _surety(growth: Growth, waiting: bool | None) -> float:
    certain = min(growth.certainty / 4, 1.0)
    return 0.5 + 0.2 * certain + 0.15 * growth.steady + (0.15 if waiting else 0.0)


def rank_causes(evidence: Evidence, growths: Sequence[Growth], limits: Limits) -> tuple[list[Cause], list[str]]:
    """Causes of slow ranks, and notes about those that aren't believed."""
    causes, notes = [], []
    for growth in growths:
        if not growth.slow(limits):
            continue
        waiting = agrees(evidence.waits.get(growth.rank, []), growth.own_s)
        if waiting is False:
            rank = evidence.profiles[growth.rank].rank
            notes.append(f"rank {rank} has {growth.ratio:.2f} x the own time but waits for others: not blamed")
            continue
        kind = kind_of(growth)
        causes.append(
            Cause(
                kind,
                (growth.rank,),
                growth.own_s,
                growth.ratio,
                evidence.equals[growth.rank],
                _surety(growth, waiting),
                _own_reasons(evidence, growth, kind, waiting),
            )
        )
    base_s = {growth.rank: level(evidence.iterations[growth.rank].own) - growth.own_s for growth in growths}
    return _input_of_all(evidence, _by_node(evidence, causes, base_s), limits), notes


def _by_node(evidence: Evidence, causes: list[Cause], base_s: Mapping[int, float]) -> list[Cause]:
    """Hosts are shared: causes of the host's kind on one node are one."""
    found: dict[object, list[Cause]] = defaultdict(list)
    for cause in causes:
        where = cause.ranks[0] if cause.kind == "gpu" else evidence.profiles[cause.ranks[0]].node
        found[cause.kind, where].append(cause)
    merged = [_merged(group) for group in found.values()]
    return [replace(cause, cost_s=max(cause.cost_s, _slowest_s(evidence, cause.ranks, base_s))) for cause in merged]


def _slowest_s(evidence: Evidence, ranks: Sequence[int], base_s: Mapping[int, float]) -> float:
    """What ranks cost together: in each iteration everybody waits for the slowest of them."""
    count = min(len(evidence.iterations[rank]) for rank in ranks)
    excess = [evidence.iterations[rank].own[-count:] - base_s[rank] for rank in ranks]
    return level(np.max(excess, axis=0))


def _merged(causes: list[Cause]) -> Cause:
    worst = max(causes, key=lambda cause: cause.cost_s)
    ranks = tuple(sorted({rank for cause in causes for rank in cause.ranks}))
    reasons = tuple(dict.fromkeys(reason for cause in causes for reason in cause.reasons))
    return Cause(worst.kind, ranks, worst.cost_s, worst.ratio, worst.path, worst.sure, reasons[:8])


def _input_of_all(evidence: Evidence, causes: list[Cause], limits: Limits) -> list[Cause]:
    """Reading that is slow on many ranks of most nodes is slow for everybody."""
    inputs = [cause for cause in causes if cause.kind == "input"]
    ranks = sum(len(cause.ranks) for cause in inputs)
    nodes = {profile.node for profile in evidence.profiles}
    if len(nodes) < 2 or ranks <= limits.few * len(evidence.profiles) or 2 * len(inputs) <= len(nodes):
        return causes
    worst = max(inputs, key=lambda cause: cause.cost_s)
    text = f"the gap between iterations has grown on {ranks} ranks of {len(inputs)} nodes: no node is blamed"
    everybody = Cause("input", (), worst.cost_s, worst.ratio, "everybody", 0.7, (text, *worst.reasons[:1]))
    return [cause for cause in causes if cause.kind != "input"] + [everybody]


def hosts_that_come_last(evidence: Evidence, causes: list[Cause]) -> list[Cause]:
    """Of causes from the hosts' times alone those whose ranks also come last; GPU or host can't be told apart."""
    shares = last_shares(evidence.profiles, evidence.calls, evidence.clocks)
    text = "only the hosts' times are known: it comes last to its collectives"
    return [
        replace(cause, kind="unknown", sure=0.5, reasons=(*cause.reasons, text))
        for cause in causes
        if cause.ranks and max(shares.get(rank, 0.0) for rank in cause.ranks) >= LAST_MOSTLY
    ]


def _ways(slower: Slower) -> str:
    ways = {way for way, _ in slower.slow_classes}
    if ways == {DOWN}:
        return "from the former to the latter"
    if ways == {UP}:
        return "from the latter to the former"
    return "in both directions" if {DOWN, UP} <= ways or ways == {BOTH} else "in calls of both directions"


def _link_reasons(evidence: Evidence, slower: Slower) -> tuple[str, ...]:
    ranks = [evidence.profiles[member].rank for member in slower.channel.members]
    than = "that of comparable groups" if slower.than == "equals" else "its own when the job was healthy"
    more = f"{slower.ratio:.2f} x {than}, {_milliseconds(slower.excess_s)} more an iteration"
    if slower.channel.pair:
        return (f"transfers between ranks {ranks[0]} and {ranks[1]}: {more}, {_ways(slower)}",)
    named = ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")
    text = f"collectives of ranks {named}: {more}"
    if len(ranks) == 2:
        return (text,)
    return text, "which link of this group can't be told from watching alone"


def link_causes(evidence: Evidence, slower: Sequence[Slower], limits: Limits) -> list[Cause]:
    """Causes of slow channels; channels between the same nodes (within a node: the same ranks) are one."""
    found: dict[object, list[Cause]] = defaultdict(list)
    for row in slower:
        if not row.slow(limits, evidence.iteration_s):
            continue
        members = row.channel.members
        nodes = frozenset(evidence.profiles[member].node for member in members)
        sure = 0.6 + 0.2 * min(row.certainty / 4, 1.0) + (0.1 if len(members) == 2 else -0.1)
        cause = Cause(
            "link", members, row.excess_s, row.ratio, ("link", row.channel.kind), sure, _link_reasons(evidence, row)
        )
        found[nodes if len(nodes) > 1 else members].append(cause)
    return [_merged(group) for group in found.values()]


def common_growth(growths: Sequence[Growth], limits: Limits) -> Growth | None:
    """What all ranks' own time has grown by alike against the reference; None if it hasn't."""
    if len(growths) < 2:
        return None

    def middle(name: str) -> float:
        return low_median([getattr(growth, name) for growth in growths])

    names = ("own_s", "gpu_s", "host_s", "boundary_s", "ratio", "certainty", "steady", "iteration_s")
    alike = Growth(rank=-1, than="reference", **{name: middle(name) for name in names})
    rest = low_median([growth.own_s for growth in growths if growth.own_s <= alike.own_s])
    enough = alike.ratio >= limits.common_ratio and alike.own_s >= limits.iteration_share * alike.iteration_s
    even = rest >= _EVEN * alike.own_s
    return alike if enough and even and alike.certainty >= 1.0 and alike.steady >= limits.steady else None
