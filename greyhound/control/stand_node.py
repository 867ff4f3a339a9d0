"""A node's part in finding fail-stops: tells the master which ranks make no more calls, and when they go on.

Each is told once, with what it has issued so far; while all ranks work nothing is sent.
"""

from collections.abc import Iterable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from greyhound.control.fields import TEXT_LIMIT
from greyhound.control.stand_message import (
    MOST_COMMS,
    MOST_COUNTS,
    MOST_IN_FLIGHT,
    RANKS_A_MESSAGE,
    Rows,
    Stand,
    StandingRow,
)
from greyhound.trace import layout
from greyhound.trace.ring import Ring

STILL_S = 20.0
STILL_ITERATIONS = 5.0


class Watchable(Protocol):
    """What is needed of a rank's watch."""

    @property
    def key(self) -> str: ...

    @property
    def iteration_s(self) -> float: ...

    @property
    def has_ended(self) -> bool: ...

    def still_s(self) -> float: ...

    def standing(self) -> StandingRow: ...


class StandNode:
    """`step` once a second, after the watches have looked whether their ranks live."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def step(self, watches: Iterable[Watchable]) -> list[Stand]:
        """The messages to send now. A rank that ended by itself stands no more."""
        still: list[StandingRow] = []
        moved: list[str] = []
        there = set()
        for watch in watches:
            there.add(watch.key)
            stands = not watch.has_ended and _stands(watch)
            if stands and watch.key not in self._told:
                self._told.add(watch.key)
                still.append(watch.standing())
            elif not stands and watch.key in self._told:
                self._told.remove(watch.key)
                moved.append(watch.key)
        self._told &= there  # one that died is let go after a while: it stands for good
        parts = [still[at : at + RANKS_A_MESSAGE] for at in range(0, len(still), RANKS_A_MESSAGE)]
        return [Stand([], moved)] * bool(moved) + [Stand(part, []) for part in parts]


def _stands(watch: Watchable) -> bool:
    """Only for a rank whose iteration is known: a job that begins, or never trains, has pauses of any length."""
    return watch.iteration_s > 0 and watch.still_s() > max(STILL_S, STILL_ITERATIONS * watch.iteration_s)


def standing_row(
    key: str, rank: int, since_ns: int, now_ns: int, ring: Ring, last: NDArray[np.void] | None
) -> StandingRow:
    """What a ring shows of a rank; `now_ns` CLOCK_MONOTONIC, `last` its last record (one row) if there was one."""
    table = ring.comms()
    live = table[(table["state"] == layout.GH_COMM_LIVE) & (table["size"] > 1) & (table["rank"] >= 0)][:MOST_COMMS]
    counts = ring.counts()
    counts = counts[np.isin(counts["comm"], live["hash"])]
    counts = counts[np.argsort(counts["kind"], kind="stable")][:MOST_COUNTS]  # collectives first
    inside = ring.in_flight()[:MOST_IN_FLIGHT]
    return StandingRow(
        key=key,
        rank=rank,
        since_ns=since_ns,
        comms=_rows(live, "hash", "size", "rank"),
        counts=_rows(counts, "comm", "kind", "peer", "count"),
        in_flight=[
            [int(call["comm"]), int(call["seq"]), int(call["op"]), max(0, now_ns - int(call["t_enter_ns"]))]
            for call in inside
            if call["t_enter_ns"]
        ],
        last=_words(last)[:TEXT_LIMIT],
    )


def _rows(table: NDArray[np.void], *names: str) -> Rows:
    return [list(row) for row in zip(*(table[name].tolist() for name in names), strict=True)]


def _words(last: NDArray[np.void] | None) -> str:
    if last is None or len(last) == 0:
        return ""
    row = last[-1]
    peer = f" with peer {int(row['peer'])}" if row["peer"] >= 0 else ""
    name = layout.OPS.get(int(row["op"]), f"operation {int(row['op'])}")
    return f"{name} {int(row['seq'])} of communicator {int(row['comm']):016x}{peer}, {int(row['bytes'])} bytes"
