"""What an analyzer tells of ranks that make no more calls: how many they have issued, where they are, since when."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from greyhound.control.fields import check_of, list_of, whole
from greyhound.localize.model import Communicator

if TYPE_CHECKING:  # needs numpy, without which a node process must still be able to say so
    from greyhound.localize.failstop import Standing

RANKS_A_MESSAGE = 32
MOST_COMMS = 128
MOST_COUNTS = 1024
MOST_IN_FLIGHT = 16

Rows = list[list[int]]


@dataclass(frozen=True)
class StandingRow:
    """One rank; `since_ns` wall clock of its last call. Rows: `comms` hash, size, rank; `counts` communicator, kind
    (GH_COUNT_*), peer, number; `in_flight` communicator, seq, op, ns since its entry. `last` is its last record.
    """

    key: str
    rank: int
    since_ns: int
    comms: Annotated[Rows, list_of(list_of(whole, 3), MOST_COMMS)]
    counts: Annotated[Rows, list_of(list_of(whole, 4), MOST_COUNTS)]
    in_flight: Annotated[Rows, list_of(list_of(whole, 4), MOST_IN_FLIGHT)]
    last: str

    def standing(self, node: int, still_s: float, told_s: float) -> "Standing":
        """As localisation has it, still for so many seconds, `told_s` after it was told."""
        from greyhound.localize.failstop import InFlight, Standing

        return Standing(
            node=node,
            key=self.key,
            rank=self.rank,
            still_s=still_s,
            counts={(comm, kind, peer): count for comm, kind, peer, count in self.counts},
            comms=tuple(Communicator(*row) for row in self.comms),
            in_flight=tuple(InFlight(comm, seq, op, ns / 1e9 + told_s) for comm, seq, op, ns in self.in_flight),
            last=self.last,
        )

    @property
    def is_sound(self) -> bool:
        """Whether its rows have their lengths."""
        return all(len(row) == 3 for row in self.comms) and all(len(row) == 4 for row in self.counts + self.in_flight)


_ROW = check_of(StandingRow)


def _row(value: Any) -> StandingRow:
    row: StandingRow = _ROW(value)
    if not row.is_sound:
        raise ValueError("communicators, counts or calls with too few numbers")
    return row


@dataclass(frozen=True)
class Stand:
    """Ranks of a node that have begun to stand still, and keys of those that go on again."""

    still: Annotated[list[StandingRow], list_of(_row, RANKS_A_MESSAGE)]
    moved: list[str]
