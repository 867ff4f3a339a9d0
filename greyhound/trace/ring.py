"""Reader of one process's ring file: its calls, communicators, counters and control words."""

import errno
import mmap
import os
import stat
import struct
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from greyhound.trace import layout, mailbox
from greyhound.trace.native import load_reader
from greyhound.trace.records import COMM_DTYPE, COUNT_DTYPE, INFLIGHT_DTYPE, RECORD_DTYPE

_HEADER = struct.Struct("<QIIQIIQ40siiii32sQQIiQ")
_STATE_WORDS, _LOWER_HALF = 3, 0xFFFFFFFF
_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR)
_BOOT_ID_PATH = Path("/proc/sys/kernel/random/boot_id")


class RingError(ValueError):
    """The file is no ring that this process may read; the message says which and why."""


class RingNotReady(RingError):  # noqa: N818 - a state to wait out rather than an error
    """The hook is still making the ring; try again at the next poll."""


@dataclass(frozen=True)
class RingHeader:
    """The fields of ``struct gh_header`` that identify the process (greyhound_ring.h)."""

    magic: int
    layout: int
    record_bytes: int
    capacity: int
    pid: int
    uid: int
    pid_start: int
    boot_id: str
    world_rank: int
    local_rank: int
    slurm_procid: int
    node_index: int
    gpu_bus_id: str
    created_ns: int
    created_realtime_ns: int
    nccl_version: int
    cuda_device: int
    file_bytes: int


@dataclass(frozen=True)
class ProfileCounts:
    """``struct gh_timing_counts``: brackets made, timings written, calls left out by reason (greyhound_ring.h).

    ``clock_error_ns``: ``start_ns`` isn't wrong by more; 0 while that isn't known.
    """

    made: int
    written: int
    over_budget: int
    contended: int
    no_room: int
    unsuited: int
    failed: int
    clock_error_ns: int


def unpack_header(page: bytes) -> RingHeader:
    """The header of the first bytes of a ring; text fields end at their first NUL."""
    fields: list[Any] = [_text(field) if isinstance(field, bytes) else field for field in _HEADER.unpack_from(page)]
    return RingHeader(*fields)


def _text(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode("ascii", "replace")


class Ring:
    """One mapped ring. Not for several threads; ``close`` when the process has ended."""

    def __init__(self, path: Path, memory: mmap.mmap) -> None:
        """Use ``Ring.open``."""
        self.path = path
        self._memory = memory
        self._bytes: NDArray[np.uint8] = np.frombuffer(memory, dtype=np.uint8)
        self._copy_records = load_reader()
        self._capacity = self.header.capacity
        self._head = self._word(layout.GH_OFF_HEAD)
        self._state = self._bytes[layout.GH_OFF_STATE :][: 8 * _STATE_WORDS].view("<u8")
        self._next_index = 0

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> "Ring":
        """Map the ring at ``path``, after checking that it is whole, ours, of this boot and of this layout.

        Raises RingNotReady while the hook is still making it or this machine lacks descriptors or memory, RingError
        for everything else.
        """
        ring_path = Path(path)
        try:
            descriptor = os.open(ring_path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise _refusal(ring_path, error) from error
        try:
            size_bytes = _check_file(ring_path, os.fstat(descriptor))
            _check_header(ring_path, os.pread(descriptor, layout.GH_PAGE_BYTES, 0), size_bytes)
            memory = mmap.mmap(descriptor, size_bytes)
        except OSError as error:
            raise _refusal(ring_path, error) from error
        finally:
            os.close(descriptor)
        try:
            return cls(ring_path, memory)
        except OSError as error:  # dlopen gives no errno by which to tell a shortage
            raise RingNotReady(f"{ring_path}: can't be read: {error}") from error

    @property
    def header(self) -> RingHeader:
        """The header as it is now (the hook may learn the world rank later)."""
        return unpack_header(self._bytes[: _HEADER.size].tobytes())

    @property
    def hook_state(self) -> int:
        """One of GH_STATE_*."""
        return int(self._state[0]) & _LOWER_HALF

    @property
    def hook_flags(self) -> int:
        """GH_FLAG_* bits."""
        return int(self._state[0]) >> 32

    @property
    def heartbeat_ns(self) -> int:
        """CLOCK_MONOTONIC of the last call that the hook saw unmuted."""
        return int(self._state[1])

    @property
    def muted_calls(self) -> int:
        """Calls that passed while the hook was muted and that ``top_level`` would have kept, had they been recorded.

        Records read plus these count the process's calls through any change of mode. Those on a communicator keep
        their place in its sequence numbers, and the counters of ``counts`` go on.
        """
        return int(self._state[2])

    @property
    def recorded(self) -> int:
        """Number of records begun so far."""
        return int(self._head[0])

    def read(self) -> tuple[NDArray[np.void], int]:
        """The records since the last call, in order (RECORD_DTYPE, a copy), and how many were overwritten unread."""
        available = self.recorded - self._next_index
        if available <= 0:
            return np.empty(0, dtype=RECORD_DTYPE), 0
        try:
            records, self._next_index, lost = self._copy_records(
                self._bytes, self._next_index, min(available, self._capacity)
            )
        except ValueError as error:
            raise RingError(f"{self.path}: {error}") from error
        return records, lost

    def in_flight(self) -> NDArray[np.void]:
        """Calls that were entered and haven't returned (INFLIGHT_DTYPE, a copy)."""
        slots = self._table(layout.GH_OFF_INFLIGHT, layout.GH_INFLIGHT_SLOTS, INFLIGHT_DTYPE)
        busy: NDArray[np.void] = slots[slots["tid"] != 0]
        return busy

    def comms(self) -> NDArray[np.void]:
        """Communicators made so far, the destroyed ones included (COMM_DTYPE, a copy)."""
        slots = self._table(layout.GH_OFF_COMMS, layout.GH_COMM_SLOTS, COMM_DTYPE)
        made: NDArray[np.void] = slots[slots["state"] != layout.GH_COMM_FREE]
        return made

    def counts(self) -> NDArray[np.void]:
        """Calls issued by communicator and kind (COUNT_DTYPE, a copy)."""
        slots = self._table(layout.GH_OFF_COUNTS, layout.GH_COUNT_SLOTS, COUNT_DTYPE)
        used: NDArray[np.void] = slots[slots["comm"] != 0]
        return used

    def set_mode(self, mode: int) -> None:
        """Tell the hook its mode, one of GH_MODE_*."""
        self._word(layout.GH_OFF_MODE)[0] = mode

    def set_profile(self, budget_per_s: int, one_in: int = 1, epoch: int = 1) -> None:
        """Tell the hook to time calls on the GPU (``trace.records.timings``), at most so many brackets a second.

        ``one_in``: of each communicator runs of 16 calls, one run of so many, the same on all members; 1: every call.
        ``epoch``: anew for each request; a change makes the hook forget what is under way. A budget of 0 ends it.
        Raises ValueError for what the word (GH_OFF_PROFILE) can't hold.
        """
        if not (0 <= budget_per_s < 1 << 32 and 1 <= one_in < 1 << 16 and 0 <= epoch < 1 << 16):
            raise ValueError(f"no profile word: budget_per_s={budget_per_s}, one_in={one_in}, epoch={epoch}")
        word = epoch << 48 | one_in << 32 | budget_per_s if budget_per_s else 0
        self._word(layout.GH_OFF_PROFILE)[0] = word

    @property
    def profile_counts(self) -> ProfileCounts:
        """What profiling has done in this process since its start."""
        words = self._bytes[layout.GH_OFF_TIMINGS :][: 8 * len(fields(ProfileCounts))].view("<u8")
        return ProfileCounts(*(int(word) for word in words))

    def set_master_heartbeat(self, ns: int) -> None:
        """Tell the hook when the master was last heard (CLOCK_MONOTONIC of this host)."""
        self._word(layout.GH_OFF_MASTER_HEARTBEAT)[0] = ns

    def write_plan(self, text: bytes) -> None:
        """Put a plan (JSON) into the plugin's mailbox. ValueError if it is too long."""
        mailbox.write(self._mailbox(layout.GH_OFF_PLAN), text)

    def read_report(self) -> bytes | None:
        """The plugin's newest report (JSON); None while there is none. Raises mailbox.MailboxError if it is damaged."""
        found = mailbox.read(self._mailbox(layout.GH_OFF_REPORT))
        return found[1] if found else None

    def _mailbox(self, offset_bytes: int) -> memoryview:
        return memoryview(self._memory)[offset_bytes : offset_bytes + layout.GH_MAILBOX_BYTES]

    def close(self) -> None:
        """Unmap the file; the ring can't be used afterwards. Closing twice is harmless."""
        empty = np.empty(0, dtype=np.uint8)
        self._bytes, self._head, self._state = empty, empty.view("<u8"), empty.view("<u8")
        if not self._memory.closed:
            self._memory.close()

    def _word(self, offset_bytes: int) -> NDArray[np.uint64]:
        return self._bytes[offset_bytes : offset_bytes + 8].view("<u8")

    def _table(self, offset_bytes: int, slots: int, dtype: np.dtype[np.void]) -> NDArray[np.void]:
        return self._bytes[offset_bytes : offset_bytes + slots * dtype.itemsize].view(dtype).copy()


def _refusal(path: Path, error: OSError) -> RingError:
    """What a failed system call means for the ring: a shortage passes, everything else stays."""
    kind = RingNotReady if error.errno in _SHORTAGES else RingError
    return kind(f"{path}: not a ring that can be opened: {error.strerror}")


def _check_file(path: Path, status: os.stat_result) -> int:
    """Refuse what no hook of this user can have made; returns the size in bytes."""
    if not stat.S_ISREG(status.st_mode):
        raise RingError(f"{path}: not a regular file; a ring is one")
    if status.st_uid != os.geteuid():
        raise RingError(f"{path}: belongs to uid {status.st_uid}, not to this process's uid {os.geteuid()}; not read")
    if status.st_size == 0:
        raise RingNotReady(f"{path}: still empty")
    if status.st_size < layout.GH_OFF_RECORDS + layout.GH_RECORD_BYTES:
        raise RingError(f"{path}: truncated: {status.st_size} bytes, less than the tables alone take")
    return status.st_size


def _check_header(path: Path, page: bytes, size_bytes: int) -> None:
    header = unpack_header(page)
    if header.magic == 0:
        raise RingNotReady(f"{path}: still being made")
    if header.magic != layout.GH_MAGIC:
        raise RingError(f"{path}: not a ring: it starts with 0x{header.magic:016x}, not 0x{layout.GH_MAGIC:016x}")
    if header.layout != layout.GH_LAYOUT:
        raise RingError(
            f"{path}: ring layout {header.layout}, this greyhound reads {layout.GH_LAYOUT}; "
            "install the same version everywhere"
        )
    if header.record_bytes != layout.GH_RECORD_BYTES:
        raise RingError(f"{path}: records of {header.record_bytes} bytes, expected {layout.GH_RECORD_BYTES}")
    if header.capacity == 0 or header.capacity & (header.capacity - 1):
        raise RingError(f"{path}: capacity {header.capacity} is not a power of two")
    needed_bytes = layout.GH_OFF_RECORDS + header.capacity * layout.GH_RECORD_BYTES
    if size_bytes != needed_bytes or header.file_bytes != size_bytes:
        raise RingError(
            f"{path}: truncated or resized: {size_bytes} bytes, its header names {header.file_bytes} and its "
            f"{header.capacity} records need {needed_bytes}"
        )
    boot_id = _BOOT_ID_PATH.read_text(encoding="ascii").strip()
    if header.boot_id != boot_id:
        raise RingError(f"{path}: made in another boot of this machine ({header.boot_id}, now {boot_id}); stale")
