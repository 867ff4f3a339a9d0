"""Reads a ring file for the tests, by the header's own constants and the C reader."""

from __future__ import annotations

import ctypes
import mmap
import re
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
HEADER = ROOT / "hook" / "include" / "greyhound_ring.h"
GH = {name: int(value, 0) for name, value in re.findall(r"^#define GH_(\w+) (\w+)", HEADER.read_text(), re.M)}
OPS = {value: name[3:].lower() for name, value in GH.items() if name.startswith("OP_")}


def row(text: str) -> np.dtype:
    """A packed row from `name type` pairs separated by commas."""
    return np.dtype([(name, kind) for name, kind in (pair.split() for pair in text.split(","))])


RECORD = row(
    "commit <u8, t_ns <u8, comm <u8, bytes <u8, seq <u4, host_ns <u4, stream <u4, group <u4, op u1, dtype u1, redop u1,"
    "flags u1, peer <i4, thread <u4, aux <u4"
)
COMM = row(
    "hash <u8, parent <u8, rank <i4, size <i4, device <i4, state <u4, made_by <u4, children <u4, color <i4,"
    "next_seq <u4, alias <u8, reserved <u8"
)
COUNT = row("comm <u8, kind <u4, peer <i4, count <u8, reserved <u8")
INFLIGHT = row("tid <u4, op <u4, comm <u8, seq <u4, pad <u4, t <u8, reserved V32")
FIELDS = {
    "magic": (0, "<u8"), "layout": (8, "<u4"), "record_bytes": (12, "<u4"), "capacity": (16, "<u8"), "pid": (24, "<u4"),
    "uid": (28, "<u4"), "pid_start": (32, "<u8"), "world_rank": (80, "<i4"), "local_rank": (84, "<i4"),
    "slurm_procid": (88, "<i4"), "node_index": (92, "<i4"), "created_ns": (128, "<u8"), "nccl_version": (144, "<u4"),
    "cuda_device": (148, "<i4"), "file_bytes": (152, "<u8"), "head": (192, "<u8"), "hook_state": (256, "<u4"),
    "hook_flags": (260, "<u4"), "heartbeat_ns": (264, "<u8"), "muted_calls": (272, "<u8"),
}  # fmt: skip


class Ring:
    """One ring file; numbers by header field name, tables as numpy arrays of their used rows."""

    def __init__(self, path: Path, reader: Path) -> None:
        self.path = path
        with path.open("r+b") as file:
            self.map = mmap.mmap(file.fileno(), 0)
        self.copy = ctypes.CDLL(str(reader)).gh_copy_records
        self.copy.restype = ctypes.c_int64

    def __getattr__(self, name: str) -> int:
        offset, kind = FIELDS[name]
        return int(np.frombuffer(self.map, kind, 1, offset)[0])

    def text(self, offset: int, size: int) -> str:
        return self.map[offset : offset + size].split(b"\0")[0].decode()

    def set_mode(self, mode: int) -> None:
        self.map[GH["OFF_MODE"] : GH["OFF_MODE"] + 4] = mode.to_bytes(4, "little")

    def set_head(self, head: int) -> None:
        self.map[GH["OFF_HEAD"] : GH["OFF_HEAD"] + 8] = head.to_bytes(8, "little")

    def commit(self, slot: int, value: int | None = None) -> int:
        """The commit word of a slot, after storing `value` in it if one is given."""
        at = GH["OFF_RECORDS"] + GH["RECORD_BYTES"] * slot
        if value is not None:
            self.map[at : at + 8] = value.to_bytes(8, "little")
        return int.from_bytes(self.map[at : at + 8], "little")

    def read(self, start: int = 0, most: int = 1 << 20) -> tuple[np.ndarray, int, int]:
        """Records from index `start`, the next index, and how many were lost."""
        out = np.zeros(most, RECORD)
        following, lost = ctypes.c_uint64(), ctypes.c_uint64()
        base = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        n = self.copy(
            ctypes.c_void_p(base), ctypes.c_uint64(start), ctypes.c_uint64(most),
            ctypes.c_void_p(out.ctypes.data), ctypes.byref(following), ctypes.byref(lost),
        )  # fmt: skip
        assert n >= 0, "not a ring"
        return out[:n], following.value, lost.value

    @property
    def records(self) -> np.ndarray:
        return self.read()[0]

    def ops(self) -> list[str]:
        return [OPS[int(op)] for op in self.records["op"]]

    @property
    def comms(self) -> np.ndarray:
        rows = np.frombuffer(self.map, COMM, GH["COMM_SLOTS"], GH["OFF_COMMS"])
        return rows[rows["state"] != GH["COMM_FREE"]].copy()

    @property
    def counts(self) -> dict[tuple[int, int, int], int]:
        rows = np.frombuffer(self.map, COUNT, GH["COUNT_SLOTS"], GH["OFF_COUNTS"])
        used = rows[rows["comm"] > 1]
        found = {(int(r["comm"]), int(r["kind"]), int(r["peer"])): int(r["count"]) for r in used}
        assert len(found) == len(used), "two rows for one key"
        return found

    @property
    def inflight(self) -> np.ndarray:
        rows = np.frombuffer(self.map, INFLIGHT, GH["INFLIGHT_SLOTS"], GH["OFF_INFLIGHT"])
        return rows[rows["tid"] != 0].copy()
