"""What profiling takes for 512 ranks on one node: python -m greyhound.bench.profiles.

A window of ten iterations of 200 timed calls each, from the records to the master's profiles. What the analyzer's
rounds do themselves (gathering, sending) and what a thread does beside them are told apart.
"""

import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from greyhound.bench.output import Measured, report
from greyhound.bench.ring_writer import make_records
from greyhound.control.messages import Message, decode, encode
from greyhound.control.profile_gather import Gathering
from greyhound.control.profile_message import ProfileDone, in_messages
from greyhound.control.profile_run import calls_sent
from greyhound.localize.from_records import RankFacts
from greyhound.localize.model import RankProfile
from greyhound.trace import layout
from greyhound.trace.records import COMM_DTYPE

_RANKS, _CALLS, _ITERATIONS, _POLLS = 512, 200, 10, 10
_S = 1_000_000_000
_COMMS = (7, 8)
T = TypeVar("T")
P = ParamSpec("P")


def _records() -> NDArray[np.void]:
    """Calls and, some calls later, their timings, as they come from a ring."""
    count = _CALLS * _ITERATIONS
    entry_ns = 1000 * _S + np.arange(count) * (_S // _CALLS)
    comm = np.where(np.arange(count) % _CALLS < _CALLS - 6, *_COMMS)
    calls = make_records(count, bytes=1 << 20, comm=comm, t_ns=entry_ns, op=layout.GH_OP_ALL_REDUCE, peer=-1)
    for number in _COMMS:
        calls["seq"][comm == number] = np.arange((comm == number).sum())
    gpu = calls.copy()
    gpu["op"] |= layout.GH_OP_TIMING
    gpu["t_ns"] += _S // _CALLS // 4
    gpu["host_ns"] = _S // _CALLS // 2
    gpu["redop"] = 0
    both = np.empty(2 * count, dtype=calls.dtype)
    both[0::2], both[1::2] = calls, gpu
    return both


def _comms() -> NDArray[np.void]:
    table = np.zeros(len(_COMMS), COMM_DTYPE)
    table["hash"], table["size"], table["state"] = _COMMS, 8, layout.GH_COMM_LIVE
    return table


def _took(function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> tuple[float, T]:
    begin_s = time.process_time()
    result = function(*arguments, **named)
    return time.process_time() - begin_s, result


def _gather(records: NDArray[np.void]) -> Gathering:
    gathering = Gathering(900 * _S, 1100 * _S, 1 << 20)
    gathering.comms = _comms()
    for part in np.array_split(records, _ITERATIONS * _POLLS):
        gathering.add(part)
    for number in range(1, _ITERATIONS + 1):
        gathering.see_end(1000 * _S + number * _S - 1)
    return gathering


def measure() -> list[Measured]:
    """Processor time, of the best of three."""
    records, most = _records(), calls_sent(_RANKS)
    facts = [RankFacts(0, f"ring.{rank}.1", rank, "0000:01:00.0", "work") for rank in range(_RANKS)]
    runs = [_once(records, facts, most) for _ in range(3)]
    best = {name: min(took[name] for took, _ in runs) for name in runs[0][0]}
    size_bytes = runs[0][1]
    window_s = float(_ITERATIONS)
    return [
        Measured(
            f"gathering of {_RANKS} ranks", best["gather"] / window_s * 100, "% of a core, in a window", 5, "less"
        ),
        Measured("making the profiles, in a thread", best["build"], "s", 3, "less"),
        Measured("writing the messages, between two rounds", best["send"] * 1e3, "ms", 250, "less"),
        Measured("reading them at the master", best["receive"], "s", 1, "less"),
        Measured("their size", size_bytes / 2**20, "MiB", 5, "less"),
    ]


def _once(records: NDArray[np.void], facts: list[RankFacts], most: int) -> tuple[dict[str, float], int]:
    """Seconds by step, and bytes sent."""
    took: dict[str, float] = {}
    took["gather"], gathered = _took(lambda: [_gather(records) for _ in facts])
    took["build"], done = _took(_build, facts, gathered, most)
    took["send"], texts = _took(_send, done)
    took["receive"], _ = _took(_receive, texts)
    return took, sum(map(len, texts))


def _send(done: list[ProfileDone]) -> list[str]:
    return [encode(Message(0, 1, 2, part)) for part in done]


def _build(facts: list[RankFacts], gathered: list[Gathering], most: int) -> list[ProfileDone]:
    profiles: list[RankProfile] = [
        gathering.build(fact, 0, most) for fact, gathering in zip(facts, gathered, strict=True)
    ]
    return in_messages("run", profiles, "")


def _receive(texts: list[str]) -> list[RankProfile]:
    heard = [decode(text).data for text in texts]
    return [row.profile(0) for part in heard if isinstance(part, ProfileDone) for row in part.profiles]


if __name__ == "__main__":
    report("profiles", measure())
