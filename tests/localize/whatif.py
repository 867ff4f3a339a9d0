"""Published what-if analyses (tables of compute and communication times by step and worker) as profiles."""

import csv
from collections import defaultdict
from pathlib import Path

from greyhound.localize.model import Communicator, RankProfile, TimedCall
from greyhound.trace import layout

START_NS = 1_700_000_000_000_000_000
OPS = {"grads-reduce-scatter": layout.GH_OP_REDUCE_SCATTER, "params-all-gather": layout.GH_OP_ALL_GATHER}


def rows(path: Path) -> list[dict[str, str]]:
    """A table's rows."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def profiles(folder: Path, trace: str) -> tuple[list[RankProfile], float]:
    """A profile a worker (its TP group is one rank here), and the seconds lost an iteration (mean).

    The members of a collective leave it together, so each one's start is the common end less its own seconds.
    """
    steps = rows(folder / f"whatif_{trace}_steps.csv")
    seconds = {int(row["iteration"]): float(row["seconds"]) for row in steps}
    lost_s = [float(row["seconds"]) - float(row["seconds_no_straggler"]) for row in steps]
    compute: dict[tuple[int, int], dict[int, float]] = defaultdict(dict)
    for row in rows(folder / f"whatif_{trace}_worker_compute.csv"):
        compute[int(row["pp_stage"]), int(row["dp_rank"])][int(row["step"])] = float(row["compute_seconds_sum"])
    calls = _calls(folder, trace, list(seconds))
    size = 1 + max(dp for _, dp in compute)
    return [
        _profile(place, rank, size, own, seconds, calls[place])
        for rank, (place, own) in enumerate(sorted(compute.items()))
    ], sum(lost_s) / len(lost_s)


def _calls(folder: Path, trace: str, steps: list[int]) -> dict[tuple[int, int], list[TimedCall]]:
    found: dict[tuple[int, int], list[TimedCall]] = defaultdict(list)
    for row in rows(folder / f"whatif_{trace}_dp_comm.csv"):
        place = int(row["pp_stage"]), int(row["dp_rank"])
        step = steps.index(int(row["step"]))
        later = list(OPS).index(row["op"])
        end_ns = START_NS + step * 100_000_000_000 + later * 50_000_000_000
        start_ns = end_ns - round(float(row["seconds"]) * 1e9)
        call = TimedCall(place[0] + 1, 2 * step + later, OPS[row["op"]], 1 << 30, -1, start_ns, start_ns, end_ns)
        found[place].append(call)
    return found


def _profile(
    place: tuple[int, int],
    rank: int,
    size: int,
    own: dict[int, float],
    seconds: dict[int, float],
    calls: list[TimedCall],
) -> RankProfile:
    stage, dp = place
    steps = sorted(own)
    nothing = (0.0,) * len(steps)
    return RankProfile(
        node=rank,
        key=f"dp {dp}, stage {stage}",
        rank=rank,
        bus="",
        work=f"stage {stage}",
        timed=True,
        iteration_s=tuple(seconds[step] for step in steps),
        own_s=tuple(own[step] for step in steps),
        host_s=nothing,
        boundary_s=nothing,
        comms=(Communicator(stage + 1, size, dp),),
        calls=tuple(calls),
    )
