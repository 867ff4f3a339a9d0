"""Call records as numpy arrays, and the symbols by which calls are compared."""

import numpy as np
from numpy.typing import NDArray

from greyhound.trace import layout

RECORD_DTYPE = np.dtype(
    [
        ("commit", "<u8"),
        ("t_ns", "<u8"),
        ("comm", "<u8"),
        ("bytes", "<u8"),
        ("seq", "<u4"),
        ("host_ns", "<u4"),
        ("stream", "<u4"),
        ("group", "<u4"),
        ("op", "u1"),
        ("dtype", "u1"),
        ("redop", "u1"),
        ("flags", "u1"),
        ("peer", "<i4"),
        ("thread", "<u4"),
        ("aux", "<u4"),
    ]
)
COMM_DTYPE = np.dtype(
    [
        ("hash", "<u8"),
        ("parent", "<u8"),
        ("rank", "<i4"),
        ("size", "<i4"),
        ("device", "<i4"),
        ("state", "<u4"),
        ("made_by", "<u4"),
        ("children", "<u4"),
        ("color", "<i4"),
        ("next_seq", "<u4"),
        ("reserved", "<u8", 2),
    ]
)
COUNT_DTYPE = np.dtype([("comm", "<u8"), ("kind", "<u4"), ("peer", "<i4"), ("count", "<u8"), ("reserved", "<u8")])
INFLIGHT_DTYPE = np.dtype(
    [
        ("tid", "<u4"),
        ("op", "<u4"),
        ("comm", "<u8"),
        ("seq", "<u4"),
        ("pad", "<u4"),
        ("t_enter_ns", "<u8"),
        ("reserved", "<u8", 4),
    ]
)
TIMING_DTYPE = np.dtype(
    [
        ("comm", "<u8"),
        ("seq", "<u4"),
        ("op", "u1"),
        ("bytes", "<u8"),
        ("peer", "<i4"),
        ("group", "<u4"),
        ("stream", "<u4"),
        ("entry_ns", "<u8"),
        ("start_ns", "<u8"),
        ("duration_ns", "<u8"),
    ]
)


def _check_size(name: str, dtype: np.dtype[np.void], size_bytes: int) -> None:
    if dtype.itemsize != size_bytes:
        raise layout.LayoutError(
            f"{name} has {dtype.itemsize} bytes here and {size_bytes} in {layout.HEADER_PATH}; reinstall greyhound"
        )


_check_size("record", RECORD_DTYPE, layout.GH_RECORD_BYTES)
_check_size("communicator", COMM_DTYPE, layout.GH_COMM_BYTES)
_check_size("counter", COUNT_DTYPE, layout.GH_COUNT_BYTES)
_check_size("in-flight call", INFLIGHT_DTYPE, layout.GH_INFLIGHT_BYTES)

_WORDS = layout.GH_RECORD_BYTES // 8
_COMM_WORD, _BYTES_WORD, _CALL_WORD = 2, 3, 6
# Of the word at offset 48: op, dtype and peer; not redop and flags.
_CALL_MASK = np.uint64(0xFFFFFFFF_0000FFFF)
_MIX_COMM = np.uint64(0x9E3779B97F4A7C15)
_MIX_BYTES = np.uint64(0xC2B2AE3D27D4EB4F)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_SHIFT_1, _SHIFT_2, _HALF = np.uint64(30), np.uint64(27), np.uint64(32)
_PASSED_OVER = np.uint8(layout.GH_REC_BY_HOOK | layout.GH_REC_CAPTURED)
_IN_GROUP = np.uint8(layout.GH_REC_IN_GROUP)
_UPPER_HALF = np.uint64(0xFFFFFFFF_00000000)


def symbols(records: NDArray[np.void]) -> NDArray[np.uint64]:
    """One 64-bit symbol a record: equal for equal (op, communicator, bytes, peer, dtype), else different.

    The upper half is of all but the bytes: what kind of call it is. Calls whose sizes never return are compared by it.
    The sizes of sends and receives inside a group are left out at once: all-to-all with ragged sizes (mixture of
    experts) is built of them, and they would differ in each iteration. The mix is splitmix64's finaliser.
    """
    if len(records) == 0:
        return np.empty(0, dtype=np.uint64)
    words = np.ascontiguousarray(records).view("<u8").reshape(-1, _WORDS)
    kind: NDArray[np.uint64] = words[:, _COMM_WORD] * _MIX_COMM
    kind ^= kind >> _SHIFT_1
    kind += words[:, _CALL_WORD] & _CALL_MASK
    kind *= _MIX_1
    kind ^= kind >> _SHIFT_2
    kind *= _MIX_2
    size = words[:, _BYTES_WORD] * _MIX_BYTES
    flags = records["flags"]
    if np.bitwise_or.reduce(flags) & _IN_GROUP:
        ragged = (flags & _IN_GROUP) != 0
        ragged &= (records["op"] == layout.GH_OP_SEND) | (records["op"] == layout.GH_OP_RECV)
        size[ragged] = 0
    size ^= size >> _SHIFT_1
    size *= _MIX_1
    size >>= _HALF
    kind &= _UPPER_HALF
    kind |= size
    return kind


def top_level(records: NDArray[np.void]) -> NDArray[np.void]:
    """The records that take part in tracking: the training's own transfers, in order.

    Left out: communicator constructors and destructors, calls made by the hook, GPU timings, calls captured into
    a graph (they run when it is launched), and the record of a group, whose calls are there one by one.
    """
    op, flags = records["op"], records["flags"]
    last = layout.GH_OP_WAIT_SIGNAL
    if len(records) and np.maximum.reduce(op) <= last and not (np.bitwise_or.reduce(flags) & _PASSED_OVER):
        return records  # most often
    tracked = (op <= last) | (op == layout.GH_OP_GRAPH_LAUNCH)
    tracked &= (flags & _PASSED_OVER) == 0
    kept: NDArray[np.void] = records[tracked]
    return kept


def timings(records: NDArray[np.void]) -> NDArray[np.void]:
    """What the GPU timings among the records say (TIMING_DTYPE, a copy), in the order in which they were found out.

    ``comm``, ``seq``, ``op``, ``bytes``, ``peer`` and ``stream`` are the timed call's, ``entry_ns`` the ``t_ns`` of its
    own record. ``start_ns``: its stream had come to it; ``duration_ns``: until it was over, 18 minutes at most. All
    CLOCK_MONOTONIC of its node. ``group`` above 0: a call of a group, and the times are those of the whole group.
    """
    timed = records[records["op"] >= layout.GH_OP_TIMING]
    found = np.zeros(len(timed), dtype=TIMING_DTYPE)
    for name in ("comm", "seq", "bytes", "peer", "group", "stream"):
        found[name] = timed[name]
    found["op"] = timed["op"] & np.uint8(layout.GH_OP_TIMING - 1)
    found["start_ns"] = timed["t_ns"]
    found["entry_ns"] = timed["aux"].astype(np.uint64) << _HALF | timed["thread"]
    found["duration_ns"] = timed["redop"].astype(np.uint64) << _HALF | timed["host_ns"]
    return found
