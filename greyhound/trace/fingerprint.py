"""What work a rank does in an iteration, as a short digest: the same in every run of the same training.

Communicator hashes differ from run to run, so a communicator counts by its size; the order of calls differs between
threads, so an iteration counts as a multiset of (operation, bytes, communicator size). What makes no call doesn't show:
gradient accumulation under plain data parallelism, a longer sequence there.
"""

import hashlib
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from greyhound.trace import layout

_AGREEING = 3  # successive iterations that must be equal
_PATIENCE = 24  # iterations after which sizes are left out: with ragged sequences they never repeat
_MAX_KINDS = 4096  # in an iteration; beyond, nothing is remembered
_DIGEST_HEX = 16

Calls = Counter[tuple[int, int, int]]


@dataclass(frozen=True)
class Fingerprint:
    """Digest and what it stands for: calls and bytes in an iteration; ``ragged`` if sizes were left out of it."""

    digest: str
    calls: int
    bytes: int
    ragged: bool


def count_calls(records: NDArray[np.void], comm_sizes: Mapping[int, int]) -> Calls:
    """Calls by (operation, bytes, size of their communicator; 0 unknown)."""
    if len(records) == 0:
        return Counter()
    comms, which = np.unique(records["comm"], return_inverse=True)
    sizes = np.array([comm_sizes.get(int(comm), 0) for comm in comms], dtype=np.uint64)
    rows = np.stack([records["op"].astype(np.uint64), records["bytes"].astype(np.uint64), sizes[which]], axis=1)
    kinds, counts = np.unique(rows, axis=0, return_counts=True)
    return Counter(
        {(int(op), int(size), int(members)): int(n) for (op, size, members), n in zip(kinds, counts, strict=True)}
    )


def _without_sizes(calls: Calls) -> Calls:
    coarse: Calls = Counter()
    for (op, _, members), count in calls.items():
        coarse[op, 0, members] += count
    return coarse


def _digest(calls: Calls) -> str:
    text = ";".join(f"{op},{size},{members},{count}" for (op, size, members), count in sorted(calls.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_HEX]


class FingerprintTaker:
    """Watches a rank's calls until successive iterations agree; costs nothing afterwards."""

    def __init__(self) -> None:
        self.found: Fingerprint | None = None
        self._running: Calls = Counter()
        self._iterations: deque[Calls] = deque(maxlen=_AGREEING)
        self._seen = 0
        self._partial = True  # the first iteration's begin isn't known

    def restart(self) -> None:
        """The calls become others, or some were lost: begin anew."""
        self.__init__()  # type: ignore[misc]

    def push(self, records: NDArray[np.void], ends_ns: Sequence[int], comm_sizes: Mapping[int, int]) -> None:
        """Take the next top-level records and the ends (CLOCK_MONOTONIC ns) of the iterations that ended with them."""
        if self.found is not None:
            return
        done = 0
        for end_ns in ends_ns:
            upto = int(np.searchsorted(records["t_ns"], end_ns, side="right"))
            self._running.update(count_calls(records[done:upto], comm_sizes))
            done = max(done, upto)
            self._close()
            if self.found is not None:
                return
        self._running.update(count_calls(records[done:], comm_sizes))
        if len(self._running) > _MAX_KINDS:
            self.restart()

    def _close(self) -> None:
        calls, self._running = self._running, Counter()
        if self._partial:
            self._partial = False
            return
        self._seen += 1
        ragged = self._seen > _PATIENCE
        self._iterations.append(_without_sizes(calls) if ragged else calls)
        agree = len(self._iterations) == _AGREEING and all(row == self._iterations[0] for row in self._iterations)
        if agree and calls:
            volume = sum(size * count for (_, size, _), count in calls.items())
            self.found = Fingerprint(_digest(self._iterations[0]), sum(calls.values()), volume, ragged)


def comm_sizes(comms: NDArray[np.void]) -> dict[int, int]:
    """Size by hash, from a ring's communicator table (COMM_DTYPE); pending ones are left out."""
    known = comms[comms["state"] != layout.GH_COMM_PENDING]
    return {int(row["hash"]): int(row["size"]) for row in known}
