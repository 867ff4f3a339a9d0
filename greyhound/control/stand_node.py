"""A node's part in finding fail-stops: tells the master which ranks make no more calls, and when they go on.

Each is told once, with what it has issued so far; while all ranks work nothing is sent.
"""

import math
from collections.abc import Iterable
from pathlib import Path
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
BUSY_BYTES_A_S = 1 << 20  # a rank that reads or writes so much saves or loads something, however long that takes
BUSY_KEPT_S = 10.0  # between two files


class Watchable(Protocol):
    """What is needed of a rank's watch."""

    @property
    def key(self) -> str: ...

    @property
    def pid(self) -> int: ...

    @property
    def iteration_s(self) -> float: ...

    @property
    def has_ended(self) -> bool: ...

    def still_s(self) -> float: ...

    def standing(self) -> StandingRow: ...


def transferred_bytes(pid: int) -> int:
    """What a process has read and written so far, page cache included; 0 where that isn't known."""
    try:
        text = Path(f"/proc/{pid}/io").read_text(encoding="ascii")
    except (OSError, ValueError):
        return 0
    fields = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    return int(fields.get("rchar", 0)) + int(fields.get("wchar", 0))


class _Transfers:
    """Whether a process reads or writes much, from looks at it now and then."""

    def __init__(self) -> None:
        self._last: tuple[float, int] | None = None
        self._busy_until_s = -math.inf

    def busy(self, now_s: float, so_far_bytes: int) -> bool:
        if self._last is not None:
            took_s, more = now_s - self._last[0], so_far_bytes - self._last[1]
            if took_s > 0 and more >= BUSY_BYTES_A_S * took_s:
                self._busy_until_s = now_s + BUSY_KEPT_S
        self._last = now_s, so_far_bytes
        return now_s < self._busy_until_s


class StandNode:
    """`step` once a second, after the watches have looked whether their ranks live."""

    def __init__(self) -> None:
        self._told: set[str] = set()
        self._transfers: dict[str, _Transfers] = {}

    def step(self, now_s: float, watches: Iterable[Watchable]) -> list[Stand]:
        """The messages to send at `now_s` (monotonic). A rank that ended by itself, or saves a file, doesn't stand."""
        still: list[StandingRow] = []
        moved: list[str] = []
        there = set()
        for watch in watches:
            there.add(watch.key)
            stands = not watch.has_ended and _is_still(watch) and not self._transfers_much(watch, now_s)
            if stands and watch.key not in self._told:
                self._told.add(watch.key)
                still.append(watch.standing())
            elif not stands and watch.key in self._told:
                self._told.remove(watch.key)
                moved.append(watch.key)
        self._told &= there  # one that died is let go after a while: it stands for good
        self._transfers = {key: seen for key, seen in self._transfers.items() if key in there}
        parts = [still[at : at + RANKS_A_MESSAGE] for at in range(0, len(still), RANKS_A_MESSAGE)]
        return [Stand([], moved)] * bool(moved) + [Stand(part, []) for part in parts]

    def _transfers_much(self, watch: Watchable, now_s: float) -> bool:
        if not watch.pid:
            return False
        seen = self._transfers.setdefault(watch.key, _Transfers())
        return seen.busy(now_s, transferred_bytes(watch.pid))


def _is_still(watch: Watchable) -> bool:
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
