"""Writes valid rings for tests; the product's only writer is the hook."""

import os
import struct
from pathlib import Path

import numpy as np

from greyhound.trace import layout
from greyhound.trace.records import RECORD_DTYPE

HEADER = struct.Struct("<QIIQIIQ40siiii32sQQIiQ")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class RingWriter:
    """A ring file made and filled as the hook does it, in numpy, by one thread."""

    def __init__(self, path, capacity=1024, **fields):
        self.path = Path(path)
        self.capacity = capacity
        size_bytes = layout.GH_OFF_RECORDS + capacity * layout.GH_RECORD_BYTES
        with self.path.open("wb") as file:
            file.truncate(size_bytes)
        self.bytes = np.memmap(self.path, dtype=np.uint8, mode="r+")
        self.head = self.bytes[layout.GH_OFF_HEAD :][:8].view("<u8")
        self.slots = self.bytes[layout.GH_OFF_RECORDS :].view(RECORD_DTYPE)
        self.write_header(file_bytes=size_bytes, **fields)

    def write_header(self, **changes):
        values = {
            "magic": layout.GH_MAGIC,
            "layout": layout.GH_LAYOUT,
            "record_bytes": layout.GH_RECORD_BYTES,
            "capacity": self.capacity,
            "pid": os.getpid(),
            "uid": os.getuid(),
            "pid_start": 1,
            "boot_id": BOOT_ID,
            "world_rank": 3,
            "local_rank": 1,
            "slurm_procid": 3,
            "node_index": 1,
            "gpu_bus_id": "0000:65:00.0",
            "created_ns": 1,
            "created_realtime_ns": 2,
            "nccl_version": 22105,
            "cuda_device": 1,
            "file_bytes": len(self.bytes),
        } | changes
        packed = HEADER.pack(*(value.encode() if isinstance(value, str) else value for value in values.values()))
        self.bytes[: HEADER.size] = np.frombuffer(packed, dtype=np.uint8)

    def append(self, records):
        """Append an array of RECORD_DTYPE; sets the commit words."""
        begin = int(self.head[0])
        numbers = np.arange(begin, begin + len(records), dtype=np.uint64)
        committed = np.array(records, dtype=RECORD_DTYPE)
        committed["commit"] = numbers + np.uint64(1)
        self.slots[(numbers % np.uint64(self.capacity)).astype(np.int64)] = committed
        self.head[0] = begin + len(records)


def make_records(count, **columns):
    """`count` all-reduce records one millisecond apart; columns override."""
    records = np.zeros(count, dtype=RECORD_DTYPE)
    records["t_ns"] = np.arange(count) * 1_000_000
    records["comm"] = 0xABCDEF
    records["bytes"] = 4096
    records["op"] = layout.GH_OP_ALL_REDUCE
    records["peer"] = -1
    for name, column in columns.items():
        records[name] = column
    return records
