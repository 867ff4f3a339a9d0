"""The two mailboxes in the hook's ring: a plan comes in, a report goes out. Shared memory only, no file, no socket.

A mailbox (struct gh_mailbox_header, greyhound_ring.h) has one writer. `seq` is odd while it writes and even
afterwards; a reader takes a message only if `seq` was even and the same before and after, and the crc32 is right.
"""

import ctypes
import json
import logging
import struct
import zlib
from collections.abc import Mapping
from typing import Any

from greyhound.trace import layout

log = logging.getLogger(__name__)
_HEADER = struct.Struct("<QIII")
MOST_BYTES = layout.GH_MAILBOX_BYTES - layout.GH_MAILBOX_HEADER_BYTES
READ_TRIES = 3
Memory = memoryview


class MailboxError(ValueError):
    """A message that can't be used; the text says why."""


def read(memory: Memory) -> tuple[int, bytes] | None:
    """(seq, message) of the mailbox in `memory`; None while there is none or it is being written.

    Raises MailboxError where it is damaged.
    """
    for _ in range(READ_TRIES):
        seq, _version, crc32, length = _HEADER.unpack_from(memory)
        if seq == 0:
            return None
        if seq % 2 or length > MOST_BYTES:
            continue
        begin = layout.GH_MAILBOX_HEADER_BYTES
        text = bytes(memory[begin : begin + length])
        if _HEADER.unpack_from(memory)[0] != seq:
            continue
        if zlib.crc32(text) != crc32:
            raise MailboxError("a message in shared memory whose checksum is wrong")
        return seq, text
    return None


def write(memory: Memory, text: bytes, version: int = 0) -> None:
    """Replace the mailbox's message. ValueError if it is too long."""
    if len(text) > MOST_BYTES:
        raise ValueError(f"a message of {len(text)} bytes; {MOST_BYTES} at most")
    seq = _HEADER.unpack_from(memory)[0]
    seq += seq % 2  # a writer that died in the middle left it odd
    struct.pack_into("<Q", memory, 0, seq + 1)
    begin = layout.GH_MAILBOX_HEADER_BYTES
    memory[begin : begin + len(text)] = text
    struct.pack_into("<III", memory, 8, version, zlib.crc32(text), len(text))
    struct.pack_into("<Q", memory, 0, seq + 2)


class ControlPage:
    """The mailboxes of this process's ring."""

    def __init__(self, plan: Memory, report: Memory) -> None:
        self._plan = plan
        self._report = report
        self._seen = 0
        self._damaged = False

    def new_plan(self) -> Any:
        """The newest plan as parsed JSON if there is one that wasn't returned before, else None."""
        try:
            found = read(self._plan)
            if found is None or found[0] == self._seen:
                return None
            self._seen = found[0]
            return json.loads(found[1])
        except (MailboxError, ValueError, RecursionError) as error:
            if not self._damaged:
                self._damaged = True
                log.warning("greyhound: a plan was ignored: %s", error)
            return None

    def report(self, fields: Mapping[str, Any]) -> None:
        """Tell the analyzer; a report that is too long is left out."""
        text = json.dumps(fields, separators=(",", ":")).encode()
        if len(text) <= MOST_BYTES:
            write(self._report, text)


def find() -> tuple[ControlPage | None, str]:
    """The page of the ring that the hook made in this process, or None and why there is none.

    It is found as a symbol in the process (`greyhound_control`): no path and no environment, so that another process's
    is never taken.
    """
    try:
        control = ctypes.CDLL(None).greyhound_control
    except AttributeError:
        return None, "the hook isn't in this process (no --greyhound)"
    control.argtypes, control.restype = [ctypes.POINTER(ctypes.c_uint32)], ctypes.c_void_p
    number = ctypes.c_uint32()
    address = control(ctypes.byref(number))
    if not address:
        return None, "the hook has no ring: no communicator was made yet, or it runs unmonitored"
    if number.value != layout.GH_LAYOUT:
        return None, f"the hook's ring has layout {number.value}, this package knows {layout.GH_LAYOUT}"

    def at(offset: int) -> Memory:
        return memoryview((ctypes.c_char * layout.GH_MAILBOX_BYTES).from_address(address + offset)).cast("B")

    return ControlPage(at(layout.GH_OFF_PLAN), at(layout.GH_OFF_REPORT)), ""
