"""A synthetic rank: writes a ring as the hook would, CALLS all-reduces an iteration, slow between two iterations.

python ring_program.py ITERATIONS SECONDS [--slow FROM TO FACTOR] [--exit CODE] [--kill-self] [--until FILE]
"""

import argparse
import mmap
import os
import signal
import struct
import time
from pathlib import Path

from greyhound.trace import layout

CALLS = 6
PAUSE = 0.6  # of an iteration: without calls, as in a forward pass
COMM = 0xABCD
CAPACITY = 4096
HEADER = struct.Struct("<QIIQIIQ40siiii32sQQIiQ")


def pid_start() -> int:
    text = Path("/proc/self/stat").read_text()
    return int(text[text.rfind(")") + 2 :].split()[19])


class RingWriter:
    def __init__(self, folder: Path, rank: int, pid: int | None = None) -> None:
        """`pid`: of another process than this one, where a test needs several rings."""
        pid = pid or os.getpid()
        self.path = folder / f"ring.{pid}.{pid_start()}"
        size = layout.GH_OFF_RECORDS + CAPACITY * layout.GH_RECORD_BYTES
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.ftruncate(fd, size)
        self.memory = mmap.mmap(fd, size)
        os.close(fd)
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()
        header = HEADER.pack(
            0, layout.GH_LAYOUT, layout.GH_RECORD_BYTES, CAPACITY, pid, os.getuid(), pid_start(), boot_id,
            rank, rank, -1, 0, b"0000:00:00.0", time.monotonic_ns(), time.time_ns(), 22703, 0, size,
        )  # fmt: skip
        self.memory[: len(header)] = header
        struct.pack_into("<I", self.memory, layout.GH_OFF_STATE, layout.GH_STATE_RUNNING)
        self.memory[:8] = struct.pack("<Q", layout.GH_MAGIC)
        self.index = self.calls = 0

    def call(self, nbytes: int, t_ns: int | None = None) -> int:
        """One all-reduce; its number on the communicator."""
        seq, self.calls = self.calls, self.calls + 1
        entry_ns = t_ns or time.monotonic_ns()
        rest = (layout.GH_OP_ALL_REDUCE, 7, 0, 0, -1, os.getpid(), 0)
        self._write(struct.pack("<QQQIIIIBBBBiII", entry_ns, COMM, nbytes, seq, 1000, 7, 0, *rest))
        return seq

    def timing(self, seq: int, nbytes: int, entry_ns: int, start_ns: int, duration_ns: int) -> None:
        """What the hook writes of a call that it timed on the GPU."""
        rest = (layout.GH_OP_ALL_REDUCE | layout.GH_OP_TIMING, 7, duration_ns >> 32, 0, -1, entry_ns)
        self._write(struct.pack("<QQQIIIIBBBBiQ", start_ns, COMM, nbytes, seq, duration_ns & 0xFFFFFFFF, 7, 0, *rest))

    def _write(self, fields: bytes) -> None:
        offset = layout.GH_OFF_RECORDS + self.index % CAPACITY * layout.GH_RECORD_BYTES
        struct.pack_into("<Q", self.memory, layout.GH_OFF_HEAD, self.index + 1)
        self.memory[offset : offset + layout.GH_RECORD_BYTES] = bytes(8) + fields
        struct.pack_into("<Q", self.memory, offset, self.index + 1)
        self.index += 1

    def join(self, size: int, rank: int, state: int = layout.GH_COMM_LIVE) -> None:
        """Be a member of the communicator that all calls are on."""
        fields = struct.pack("<QQiiiI", COMM, 0, rank, size, 0, state)
        self.memory[layout.GH_OFF_COMMS : layout.GH_OFF_COMMS + len(fields)] = fields

    def count(self, slot: int, kind: int, peer: int, number: int) -> None:
        """A row of the counters: calls of a kind on the communicator."""
        offset = layout.GH_OFF_COUNTS + slot * layout.GH_COUNT_BYTES
        struct.pack_into("<QIiQ", self.memory, offset, COMM, kind, peer, number)

    def enter(self, slot: int, seq: int, op: int, entry_ns: int) -> None:
        """Be inside a call."""
        offset = layout.GH_OFF_INFLIGHT + slot * layout.GH_INFLIGHT_BYTES
        struct.pack_into("<IIQIIQ", self.memory, offset, 1 + slot, op, COMM, seq, 0, entry_ns)

    @property
    def profile(self) -> int:
        """The control word."""
        return struct.unpack_from("<Q", self.memory, layout.GH_OFF_PROFILE)[0]

    def add_muted(self, calls: int) -> None:
        """As the hook counts calls that pass while it is muted."""
        (count,) = struct.unpack_from("<Q", self.memory, layout.GH_OFF_STATE + 16)
        struct.pack_into("<Q", self.memory, layout.GH_OFF_STATE + 16, count + calls)

    def end(self) -> None:
        struct.pack_into("<I", self.memory, layout.GH_OFF_STATE, layout.GH_STATE_ENDED)

    @property
    def mode(self) -> int:
        return struct.unpack_from("<Q", self.memory, layout.GH_OFF_MODE)[0]

    @property
    def master_heartbeat_ns(self) -> int:
        return struct.unpack_from("<Q", self.memory, layout.GH_OFF_MASTER_HEARTBEAT)[0]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("iterations", type=int)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--slow", nargs=3, type=float, default=(0, 0, 1))
    parser.add_argument("--exit", type=int, default=0)
    parser.add_argument("--kill-self", action="store_true")
    parser.add_argument("--until", type=Path, help="end early once this file is there")
    given = parser.parse_args()
    folder = os.environ.get("GREYHOUND_DIR")
    rank = int(os.environ.get("RANK", "0"))
    writer = RingWriter(Path(folder), rank) if folder else None
    first, last, factor = given.slow
    due = time.monotonic()
    for iteration in range(given.iterations):
        if given.until and given.until.exists():
            break
        seconds = given.seconds * (factor if first <= iteration < last else 1)
        for call in range(CALLS):
            due += seconds * (PAUSE if call == 0 else (1 - PAUSE) / (CALLS - 1))
            time.sleep(max(0.0, due - time.monotonic()))
            if writer:
                writer.call(1024 * (1 + call))
    if given.kill_self:
        os.kill(os.getpid(), signal.SIGKILL)
    if writer:
        writer.end()
    print(f"rank {rank} done", flush=True)
    raise SystemExit(given.exit)


if __name__ == "__main__":
    main()
