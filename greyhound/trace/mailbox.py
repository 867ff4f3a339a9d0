"""Mailboxes in the ring: one message of JSON each way between the analyzer and a plugin in the training.

A mailbox (struct gh_mailbox_header, greyhound_ring.h) has one writer. `seq` is odd while it writes and even
afterwards; a reader takes a message only if `seq` was even and the same before and after, and the crc32 is right.
Standard library only: the plugin runs in the user's environment.
"""

import struct
import zlib

from greyhound.trace import layout

_HEADER = struct.Struct("<QIII")
MOST_BYTES = layout.GH_MAILBOX_BYTES - layout.GH_MAILBOX_HEADER_BYTES
READ_TRIES = 3


class MailboxError(ValueError):
    """A message that can't be used; the text says why."""


def read(memory: memoryview) -> tuple[int, bytes] | None:
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


def write(memory: memoryview, text: bytes, version: int = 0) -> None:
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
