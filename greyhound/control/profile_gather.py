"""What one rank's profile is made of, gathered while its ring is read: calls, GPU timings, ends of iterations."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from greyhound.localize.from_records import NoProfile, RankFacts, Window, build
from greyhound.localize.model import RankProfile
from greyhound.trace.records import COMM_DTYPE, RECORD_DTYPE, timings, top_level

MOST_ENDS = 4096


@dataclass
class Gathering:
    """One rank in one window of CLOCK_MONOTONIC ns. Records are kept as they came; `build` may run in any thread."""

    begin_ns: int
    end_ns: int
    most_records: int
    held: int = 0
    records: list[NDArray[np.void]] = field(default_factory=list)
    ends_ns: list[int] = field(default_factory=list)
    comms: NDArray[np.void] = field(default_factory=lambda: np.empty(0, COMM_DTYPE))
    spoilt: str = ""
    """Why nothing can be said of the rank."""

    @property
    def full(self) -> bool:
        """Whether no more is taken."""
        return self.held >= self.most_records

    def add(self, records: NDArray[np.void]) -> None:
        """What was read at once; it is looked at only when the profile is made."""
        if len(records) and not self.full and not self.spoilt:
            self.held += len(records)
            self.records.append(records)

    def see_end(self, end_ns: int) -> None:
        """An iteration ended (CLOCK_MONOTONIC)."""
        last_ns = self.ends_ns[-1] if self.ends_ns else self.begin_ns
        if last_ns < end_ns <= self.end_ns and len(self.ends_ns) < MOST_ENDS and not self.full:
            self.ends_ns.append(end_ns)

    def spoil(self, why: str) -> None:
        """Something happened that makes the rest incomparable; the first reason counts."""
        self.spoilt = self.spoilt or why

    def build(self, facts: RankFacts, offset_ns: int, most_calls: int) -> RankProfile:
        """The profile; NoProfile where there is none."""
        if self.spoilt:
            raise NoProfile(self.spoilt)
        read = np.concatenate(self.records) if self.records else np.empty(0, RECORD_DTYPE)
        calls = top_level(read)
        calls = calls[(calls["t_ns"] >= self.begin_ns) & (calls["t_ns"] <= self.end_ns)]
        ends_ns = np.array(self.ends_ns, dtype=np.int64)
        return build(facts, Window(calls, timings(read), self.comms, ends_ns, offset_ns), most_calls)

    def clear(self) -> None:
        """Give the memory back."""
        self.records = []
