"""The calls of recorded rings as events of a timeline: a process a node, tracks for each rank.

A rank has a track of its iterations, where its period is known, one for the calls of each of its host's threads (most
have one or two), and one for each stream that it was timed on. On a track nothing overlaps.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from greyhound.trace import layout
from greyhound.trace.records import timings
from greyhound.trace.timeline_file import instant_event, metadata_event, quoted, slice_event

CHUNK = 1 << 14
TRACKS_A_RANK = 64
_STREAMS_FROM = 32
DTYPES = (
    "int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64", "bfloat16",
    "float8e4m3", "float8e5m2",
)  # fmt: skip
"""Names of ncclDataType_t."""
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")

Int64s = NDArray[np.int64]


@dataclass(frozen=True)
class Comm:
    """What a slice says of a communicator: number of members, the rank's number in it, its role where it is known."""

    size: int
    rank: int
    role: str = ""

    @property
    def words(self) -> str:
        """`dp 4`, or `4 ranks`."""
        if self.size <= 0:
            return self.role
        return f"{self.role} {self.size}" if self.role else f"{self.size} ranks"


@dataclass(frozen=True)
class Spot:
    """Where a rank is on the timeline. Times become its own plus `shift_ns`; what would be before 0 is cut."""

    pid: int
    first_tid: int
    label: str
    shift_ns: int


@dataclass
class RankTimeline:
    """Makes a rank's events, chunk by chunk, in order of its records."""

    spot: Spot
    comms: Mapping[int, Comm]
    _threads: dict[int, int] = field(default_factory=dict)
    _streams: dict[int, int] = field(default_factory=dict)
    _until_ns: dict[int, int] = field(default_factory=dict)
    _heads: dict[tuple[Any, ...], str] = field(default_factory=dict)

    def iterations(self, ends: Iterable[tuple[int, int, int]]) -> Iterator[str]:
        """(number, end, how long; ns) each, in order."""
        tid = self.spot.first_tid
        for number, end_ns, took_ns in ends:
            until_ns = self._until_ns.get(tid, 0)
            start_ns = max(end_ns - took_ns + self.spot.shift_ns, until_ns)
            length_ns = end_ns + self.spot.shift_ns - start_ns
            if length_ns <= 0:  # recorded twice
                continue
            if tid not in self._until_ns:
                yield from self._name(tid, "iterations")
            self._until_ns[tid] = start_ns + length_ns
            head = f'"name":"iteration {number}","cat":"iteration"'
            yield slice_event(head, self.spot.pid, tid, start_ns, length_ns, f'"seconds":{took_ns / 1e9:.6f}')

    def gaps(self, at_ns: Iterable[int]) -> Iterator[str]:
        """Moments (ns) before which calls were lost."""
        for ns in at_ns:
            yield instant_event(
                "calls were lost here", self.spot.pid, self.spot.first_tid + 1, max(ns + self.spot.shift_ns, 0)
            )

    def calls(self, records: NDArray[np.void]) -> Iterator[str]:
        """The host's calls, as long as the host was in them, and the GPU's timings among the records."""
        for at in range(0, len(records), CHUNK):
            rows = records[at : at + CHUNK]
            yield from self._host(rows[rows["op"] < layout.GH_OP_TIMING])
        # All timings at once: that of a long call comes behind shorter ones that began later.
        yield from self._gpu(timings(records))

    def _host(self, rows: NDArray[np.void]) -> Iterator[str]:
        for thread in np.unique(rows["thread"]).tolist():
            own = rows[rows["thread"] == thread]
            tid, is_new = self._track(self._threads, thread, self.spot.first_tid + 1, _STREAMS_FROM - 1)
            if is_new:
                yield from self._name(tid, "host" if len(self._threads) == 1 else f"host, thread {len(self._threads)}")
            yield from self._slices("host", tid, own, own["t_ns"], own["host_ns"])

    def _gpu(self, timed: NDArray[np.void]) -> Iterator[str]:
        streams = np.unique(timed["stream"]).tolist()
        several = len({*streams, *self._streams}) > 1
        for stream in streams:
            own = _groups_once(timed[timed["stream"] == stream])
            tid, is_new = self._track(self._streams, stream, self.spot.first_tid + _STREAMS_FROM, _STREAMS_FROM)
            if is_new:
                yield from self._name(tid, f"GPU, stream {len(self._streams)}{self._mostly(own)}" if several else "GPU")
            yield from self._slices("gpu", tid, own, own["start_ns"], own["duration_ns"])

    def _mostly(self, rows: NDArray[np.void]) -> str:
        """What most calls of a stream are on."""
        comms, counts = np.unique(rows["comm"], return_counts=True)
        known = self.comms.get(int(comms[np.argmax(counts)]))
        return f" ({known.words})" if known and known.words else ""

    def _track(self, known: dict[int, int], key: int, first: int, most: int) -> tuple[int, bool]:
        """The track of a thread or stream; of very many the last ones share one."""
        if key in known:
            return known[key], False
        known[key] = first + min(len(known), most - 1)
        return known[key], len(known) <= most

    def _name(self, tid: int, what: str) -> Iterator[str]:
        """Tracks are shown in the order of their numbers."""
        yield metadata_event("thread_name", self.spot.pid, tid, {"name": f"{self.spot.label} {what}"})
        yield metadata_event("thread_sort_index", self.spot.pid, tid, {"sort_index": tid})

    def _slices(
        self, category: str, tid: int, rows: NDArray[np.void], start_ns: NDArray[Any], took_ns: NDArray[Any]
    ) -> Iterator[str]:
        order = np.argsort(start_ns, kind="stable")
        rows, until_ns = rows[order], self._until_ns.get(tid, 0)
        times = start_ns[order].astype(np.int64) + self.spot.shift_ns, took_ns[order].astype(np.int64)
        starts, lengths = apart(*times, until_ns)
        for at in range(0, len(rows), CHUNK):
            part = slice(at, at + CHUNK)
            yield from self._chunk(category, tid, rows[part], starts[part], lengths[part])
        if len(rows):
            self._until_ns[tid] = int(starts[-1] + lengths[-1])

    def _chunk(self, category: str, tid: int, rows: NDArray[np.void], starts: Int64s, lengths: Int64s) -> Iterator[str]:
        dtypes = rows["dtype"].tolist() if "dtype" in (rows.dtype.names or ()) else [layout.GH_NONE] * len(rows)
        columns = (rows[name].tolist() for name in ("op", "comm", "bytes", "seq", "peer", "group"))
        for start, length, dtype, op, comm, size, seq, peer, group in zip(
            starts.tolist(), lengths.tolist(), dtypes, *columns, strict=True
        ):
            key = (category, op, comm, size, dtype, peer)
            ready = self._heads.get(key)
            if ready is None:
                ready = self._heads[key] = self._head(*key)
            head, _, args = ready.partition("\0")
            grouped = f',"group":{group}' if group else ""
            yield slice_event(head, self.spot.pid, tid, start, length, f'"seq":{seq}{grouped}{args}')

    def _head(self, category: str, op: int, comm: int, size: int, dtype: int, peer: int) -> str:
        """Name, category and those arguments that many calls share."""
        if len(self._heads) > CHUNK:
            self._heads.clear()
        known = self.comms.get(comm)
        words = [layout.OPS.get(op, f"operation {op}"), known.words if known else "", in_units(size) if size else ""]
        facts: dict[str, Any] = {"bytes": size}
        if comm:
            facts["communicator"] = f"{comm:016x}"
        if known:
            facts |= {"size": known.size, "rank_in_it": known.rank} | ({"role": known.role} if known.role else {})
        if dtype < len(DTYPES):
            facts["dtype"] = DTYPES[dtype]
        if peer >= 0:
            facts["peer_or_root"] = peer
        args = "".join(
            f",{quoted(name)}:{quoted(value) if isinstance(value, str) else value}" for name, value in facts.items()
        )
        return f'"name":{quoted(" ".join(filter(None, words)))},"cat":"{category}"\0{args}'


def apart(start_ns: Int64s, took_ns: Int64s, until_ns: int = 0) -> tuple[Int64s, Int64s]:
    """Starts (growing) and lengths, cut so that nothing overlaps on a track that is taken up to `until_ns`."""
    starts = np.maximum(start_ns, until_ns)
    ends = np.maximum(start_ns + np.maximum(took_ns, 0), starts)
    if len(starts) > 1:
        ends[:-1] = np.minimum(ends[:-1], starts[1:])
    return starts, ends - starts


def _groups_once(timed: NDArray[np.void]) -> NDArray[np.void]:
    """Each call of a group has the times of the whole: one of them stands for all, with their bytes."""
    grouped = timed[timed["group"] > 0]
    if len(grouped) == 0:
        return timed
    _, first, which = np.unique(grouped[["group", "start_ns"]], return_index=True, return_inverse=True)
    whole = grouped[first].copy()
    count = np.bincount(which)
    volume = np.zeros(len(first), dtype=np.uint64)
    np.add.at(volume, which, grouped["bytes"])
    whole["bytes"] = volume
    several = count > 1
    whole["op"][several], whole["peer"][several] = layout.GH_OP_GROUP, -1
    return np.concatenate([timed[timed["group"] == 0], whole])


def in_units(size_bytes: int) -> str:
    """`4 MiB`, `1.5 KiB`, `12 B`."""
    value, unit = float(size_bytes), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.3g} {_UNITS[unit]}" if value < 1000 else f"{value:.0f} {_UNITS[unit]}"


def comm_words(comms: NDArray[np.void], roles: Mapping[int, str]) -> dict[int, Comm]:
    """By hash, from a dump's communicators (COMM_DTYPE)."""
    return {
        int(row["hash"]): Comm(int(row["size"]), int(row["rank"]), roles.get(int(row["hash"]), ""))
        for row in comms[comms["state"] != layout.GH_COMM_PENDING]
    }


def process_events(pid: int, name: str, labels: Sequence[str]) -> Iterator[str]:
    """A node's name, and what is to be read beside it."""
    yield metadata_event("process_name", pid, 0, {"name": name})
    yield metadata_event("process_sort_index", pid, 0, {"sort_index": pid})
    if labels:
        yield metadata_event("process_labels", pid, 0, {"labels": ", ".join(labels)})
