"""What one analyzer takes for very many ranks: python -m greyhound.bench.many_ranks.

512 ranks at an iteration a second, each through the analyzer's own code: ring, period, tracker, messages. The load is
written between the rounds and its processor time left out; a round stands for a tenth of a second.
"""

import os
import tempfile
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from greyhound.bench.output import Measured, report
from greyhound.bench.reader import _memory_folder
from greyhound.bench.ring_writer import RingWriter, make_records
from greyhound.control.analyzer import Analyzer
from greyhound.control.bus import MemoryBus
from greyhound.control.link import Link
from greyhound.control.messages import Hello
from greyhound.sandbox.processes import start_ticks

_RANKS = 512
_CALLS = 200
_WARMUP_S, _MEASURED_S = 30, 10
_ROUNDS_A_SECOND = 10
_S = 1_000_000_000


def _iteration() -> NDArray[np.void]:
    """Tensor-parallel reductions in eight micro-batches, then gradients and the norm."""
    sizes = np.full(_CALLS, 1 << 20)
    sizes[-6:] = (4, 8, 1 << 24, 1 << 25, 1 << 26, 16)
    return make_records(_CALLS, bytes=sizes, comm=np.where(sizes == 1 << 20, 7, 8))


class _Node:
    """512 ranks that train, and their analyzer."""

    def __init__(self, folder: Path) -> None:
        self._bus = MemoryBus()
        start = start_ticks(os.getpid()) or 1  # the ranks live as long as this process does
        self._writers = [
            RingWriter(folder / f"ring.{1000 + rank}.1", 1024, world_rank=rank, pid_start=start)
            for rank in range(_RANKS)
        ]
        link = Link(0, Hello("n1", "host", 1), lambda: (self._bus, False))
        self.analyzer = Analyzer(folder, "observe", 0.1, 10, link)
        self._calls = _iteration()
        self._begin_ns = time.monotonic_ns() - 3600 * _S
        self._noise = np.random.default_rng(1)
        self._round = 0

    def second(self) -> float:
        """Let every rank do an iteration; the analyzer's processor time for it."""
        took_s = 0.0
        for part in np.array_split(np.arange(_CALLS), _ROUNDS_A_SECOND):
            at_ns = self._begin_ns + self._round * _S // _ROUNDS_A_SECOND
            rows = self._calls[part]
            rows["t_ns"] = at_ns + np.arange(len(part)) * (_S // _CALLS) + self._noise.integers(0, _S // 1000, 1)
            for writer in self._writers:
                writer.append(rows)
            begin_s = time.process_time()
            self.analyzer.poll(self._round / _ROUNDS_A_SECOND)
            took_s += time.process_time() - begin_s
            self._round += 1
        return took_s

    def tracked(self) -> int:
        """Ranks whose period is known."""
        return sum(watch.sample().locked for watch in self.analyzer._watches.values())


def measure() -> list[Measured]:
    """Share of a core."""
    with tempfile.TemporaryDirectory(dir=_memory_folder()) as folder:
        node = _Node(Path(folder))
        for _ in range(_WARMUP_S):
            node.second()
        if node.tracked() < _RANKS:
            raise RuntimeError(f"{node.tracked()} of {_RANKS} ranks are tracked after {_WARMUP_S} iterations")
        took_s = [node.second() for _ in range(_MEASURED_S)]
        node.analyzer.finish("the end")
    name = f"analyzer, {_RANKS} ranks at 1 iteration/s of {_CALLS} calls, median second"
    return [Measured(name, float(np.median(took_s)) * 100, "% of a core", 5, "less")]


if __name__ == "__main__":
    report("many_ranks", measure())
