"""How fast records are read from a full ring: python -m greyhound.bench.reader."""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from greyhound.bench.output import Measured, report
from greyhound.bench.ring_writer import RingWriter, make_records
from greyhound.trace import layout
from greyhound.trace.native import CopyRecords, copy_records_numpy, load_reader
from greyhound.trace.records import symbols, top_level

_ROUNDS = 15


def _records_per_second(work: Callable[[], object], records: int) -> float:
    """Of the median round, in CPU time: other processes' share of the machine doesn't count."""
    took_s = []
    for _ in range(_ROUNDS):
        begin = time.process_time()
        work()
        took_s.append(time.process_time() - begin)
    return records / float(np.median(took_s))


def measure() -> list[Measured]:
    """Records a second of one core: copied out of the ring, and copied and turned into symbols."""
    capacity: int = layout.GH_DEFAULT_CAPACITY
    with tempfile.TemporaryDirectory(dir=_memory_folder()) as folder:
        writer = RingWriter(Path(folder) / "ring.1.1", capacity)
        writer.append(make_records(capacity, bytes=np.arange(capacity) % 97))
        ring: NDArray[np.uint8] = np.asarray(writer.bytes)

        def copied(copy_records: CopyRecords) -> NDArray[np.void]:
            return copy_records(ring, 0, capacity)[0]

        native = load_reader()
        return [
            Measured("numpy reader", _records_per_second(lambda: copied(native), capacity), "records/s", 1e7, "more"),
            Measured(
                "reader without the C helper",
                _records_per_second(lambda: copied(copy_records_numpy), capacity),
                "records/s",
                5e6,
                "more",
            ),
            Measured(
                "reader and symbols",
                _records_per_second(lambda: symbols(top_level(copied(native))), capacity),
                "records/s",
                5e6,
                "more",
            ),
        ]


def _memory_folder() -> str | None:
    """Where rings live, if it is there."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


if __name__ == "__main__":
    report("reader", measure())
