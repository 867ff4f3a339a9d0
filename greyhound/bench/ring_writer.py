"""Writes rings for measurements and tests, as the hook does it; one thread, numpy."""

import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from greyhound.trace import layout
from greyhound.trace.records import RECORD_DTYPE

_HEADER = struct.Struct("<QIIQIIQ40siiii32sQQIiQ")
_BOOT_ID_PATH = Path("/proc/sys/kernel/random/boot_id")


class RingWriter:
    """A ring file of ``capacity`` records (a power of two); ``fields`` override the header's."""

    def __init__(self, path: str | os.PathLike[str], capacity: int = 1024, **fields: Any) -> None:
        """Makes the file, replacing what is there."""
        self.path = Path(path)
        self.capacity = capacity
        with self.path.open("wb") as file:
            file.truncate(layout.GH_OFF_RECORDS + capacity * layout.GH_RECORD_BYTES)
        self.bytes: NDArray[np.uint8] = np.memmap(self.path, dtype=np.uint8, mode="r+")
        self.head: NDArray[np.uint64] = self.bytes[layout.GH_OFF_HEAD :][:8].view("<u8")
        self.slots: NDArray[np.void] = self.bytes[layout.GH_OFF_RECORDS :].view(RECORD_DTYPE)
        self.write_header(**fields)

    def write_header(self, **fields: Any) -> None:
        """Write the header anew with valid values, but for ``fields``."""
        values: dict[str, Any] = {
            "magic": layout.GH_MAGIC,
            "layout": layout.GH_LAYOUT,
            "record_bytes": layout.GH_RECORD_BYTES,
            "capacity": self.capacity,
            "pid": os.getpid(),
            "uid": os.getuid(),
            "pid_start": 1,
            "boot_id": _BOOT_ID_PATH.read_text(encoding="ascii").strip(),
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
        }
        if unknown := set(fields) - set(values):
            raise ValueError(f"a ring's header has no {', '.join(sorted(unknown))}; it has {', '.join(values)}")
        row = [value.encode() if isinstance(value, str) else value for value in (values | fields).values()]
        self.bytes[: _HEADER.size] = np.frombuffer(_HEADER.pack(*row), dtype=np.uint8)

    def append(self, records: NDArray[np.void]) -> None:
        """Append rows of RECORD_DTYPE; their commit words are set here."""
        begin = int(self.head[0])
        numbers = np.arange(begin, begin + len(records), dtype=np.uint64)
        committed = records.copy()
        committed["commit"] = numbers + np.uint64(1)
        self.slots[(numbers % np.uint64(self.capacity)).astype(np.int64)] = committed
        self.head[0] = begin + len(records)


def make_records(count: int, **columns: Any) -> NDArray[np.void]:
    """``count`` all-reduce records one millisecond apart; ``columns`` override."""
    records = np.zeros(count, dtype=RECORD_DTYPE)
    records["t_ns"] = np.arange(count) * 1_000_000
    records["comm"] = 0xABCDEF
    records["bytes"] = 4096
    records["op"] = layout.GH_OP_ALL_REDUCE
    records["peer"] = -1
    for name, column in columns.items():
        records[name] = column
    return records
