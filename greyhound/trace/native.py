"""Copies record slots out of a ring while its writers go on: by the C helper, which has the needed fences."""

import ctypes
import platform
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from greyhound.trace import layout
from greyhound.trace.records import RECORD_DTYPE

READER_PATH = Path(__file__).resolve().parent.parent / "_native" / "libgreyhound_reader.so"

CopyRecords = Callable[["NDArray[np.uint8]", int, int], "tuple[NDArray[np.void], int, int]"]
"""(ring bytes, first index, most records) -> (records, next index, records lost)."""

_STUCK_RECORDS = 1024  # a slot this far behind head and still unwritten belongs to a writer that died


class ReaderMissingError(ImportError):
    """The C reader isn't built, and this machine's memory order needs it."""


def load_reader() -> CopyRecords:
    """The C reader, or on x86-64, whose loads aren't reordered, its numpy equivalent; not for several threads."""
    if READER_PATH.is_file():
        return _native_reader(READER_PATH)
    if platform.machine() in ("x86_64", "AMD64"):
        return copy_records_numpy
    raise ReaderMissingError(f"{READER_PATH} is missing; build it with: sh hook/build.sh")


def _native_reader(path: Path) -> CopyRecords:
    function = ctypes.CDLL(str(path)).gh_copy_records
    counter = ctypes.POINTER(ctypes.c_uint64)
    next_index, lost = ctypes.c_uint64(), ctypes.c_uint64()
    next_at, lost_at = ctypes.byref(next_index), ctypes.byref(lost)
    function.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p, counter, counter]
    function.restype = ctypes.c_int64

    def copy_records(ring: NDArray[np.uint8], first: int, most: int) -> tuple[NDArray[np.void], int, int]:
        out = np.empty(most, dtype=RECORD_DTYPE)
        next_index.value, lost.value = first, 0
        copied = function(ring.ctypes.data, first, most, out.ctypes.data, next_at, lost_at)
        if copied < 0:
            raise ValueError(f"gh_copy_records answered {copied}: reader and ring are of different versions")
        return out[:copied], next_index.value, lost.value

    return copy_records


def copy_records_numpy(ring: NDArray[np.uint8], first: int, most: int) -> tuple[NDArray[np.void], int, int]:
    """What gh_copy_records does, for machines with total store order only."""
    head_word = ring[layout.GH_OFF_HEAD : layout.GH_OFF_HEAD + 8].view("<u8")
    slots = ring[layout.GH_OFF_RECORDS :].view(RECORD_DTYPE)
    capacity = len(slots)
    head = int(head_word[0])
    start = max(first, head - capacity)
    end = min(head, start + most)
    at, first_part = start % capacity, min(end - start, capacity - start % capacity)
    rows = np.concatenate((slots[at : at + first_part], slots[: end - start - first_part]))
    expected = np.arange(start + 1, end + 1, dtype=np.uint64)
    whole = rows["commit"] == expected
    overrun = max(int(head_word[0]) - capacity - start, 0)
    whole[:overrun] = False
    unwritten = np.flatnonzero(~whole[overrun:]) + overrun
    # Slots near head that aren't written yet are kept for the next call.
    waiting = unwritten[unwritten + start > head - _STUCK_RECORDS]
    if len(waiting):
        end = start + int(waiting[0])
        whole = whole[: waiting[0]]
    kept = rows if whole.all() and len(whole) == len(rows) else rows[: end - start][whole]
    return kept, end, end - first - len(kept)
