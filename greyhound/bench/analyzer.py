"""What reading and tracking eight busy ranks costs: python -m greyhound.bench.analyzer."""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from greyhound.bench.output import Measured, report
from greyhound.bench.reader import _memory_folder
from greyhound.bench.ring_writer import RingWriter, make_records
from greyhound.detect.period import IterationClock
from greyhound.detect.tracker import Tracker
from greyhound.trace import layout
from greyhound.trace.records import symbols, top_level
from greyhound.trace.ring import Ring, RingError

_RANKS = 8
_RECORDS_PER_S = 5000
_POLL_S = 0.1
_WARMUP_S = 5.0
_WARMUP_SPEED = 8  # the warm-up's load is faster, so that the search for a longer period is over by its end
_MEASURED_S = 10.0
_WRITE_S = 0.01


@dataclass
class _Rank:
    ring: Ring
    clock: IterationClock = field(default_factory=IterationClock)
    tracker: Tracker = field(default_factory=Tracker)
    records: int = 0
    iterations: int = 0

    def poll(self) -> None:
        """What the analyzer does with a ring ten times a second."""
        records, lost = self.ring.read()
        if lost:
            self.clock.gap()
        tracked = top_level(records)
        self.records += len(records)
        for iteration in self.clock.push(symbols(tracked), tracked["t_ns"].astype(np.int64)):
            self.tracker.update(iteration.index, iteration.seconds)
            self.iterations += 1


def _iteration() -> NDArray[np.void]:
    """The calls of an iteration of a TP8 rank: 8 micro-batches of tensor-parallel reductions, then gradients."""
    body = np.full(8 * 300 + 6, 1 << 20)
    body[-6:] = (4, 8, 1 << 24, 1 << 25, 1 << 26, 16)
    return make_records(len(body), bytes=body, comm=np.where(body == 1 << 20, 7, 8))


def write(folder: Path, seconds: float) -> None:
    """Fill eight rings at 5,000 records a second each; the load, not what is measured."""
    writers = [RingWriter(folder / f"ring.{rank}.1", layout.GH_DEFAULT_CAPACITY) for rank in range(_RANKS)]
    calls = _iteration()
    written, begin = 0, time.monotonic()
    while (now := time.monotonic()) - begin < seconds:
        elapsed = now - begin
        due = int((elapsed + min(elapsed, _WARMUP_S) * (_WARMUP_SPEED - 1)) * _RECORDS_PER_S)
        numbers = np.arange(written, due)
        rows = calls[numbers % len(calls)]
        rows["t_ns"] = int(begin * 1e9) + numbers * (10**9 // _RECORDS_PER_S)
        for writer in writers:
            writer.append(rows)
        written = due
        time.sleep(_WRITE_S)


def _open_rings(folder: Path, deadline: float) -> list[_Rank]:
    """All rings, as soon as the writer has made them."""
    while True:
        try:
            return [_Rank(Ring.open(folder / f"ring.{rank}.1")) for rank in range(_RANKS)]
        except RingError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _poll_for(ranks: list[_Rank], seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for rank in ranks:
            rank.poll()
        time.sleep(_POLL_S)


def measure(seconds: float = _MEASURED_S) -> list[Measured]:
    """Share of a core and resident memory of the reading and tracking loop."""
    with tempfile.TemporaryDirectory(dir=_memory_folder()) as folder:
        load_s = _WARMUP_S + seconds + 10
        command = [sys.executable, "-m", "greyhound.bench.analyzer", "--write", folder, "--seconds", str(load_s)]
        load = subprocess.Popen(command)
        try:
            ranks = _open_rings(Path(folder), time.monotonic() + 60)
            _poll_for(ranks, _WARMUP_S)
            if not all(rank.clock.locked for rank in ranks):
                raise RuntimeError("the period wasn't found in the warm-up: the machine is too busy to measure on")
            before, begin, cpu = sum(rank.records for rank in ranks), time.monotonic(), time.process_time()
            _poll_for(ranks, seconds)
            cpu, took = time.process_time() - cpu, time.monotonic() - begin
        finally:
            load.kill()
            load.wait()
        read = sum(rank.records for rank in ranks) - before
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
        for rank in ranks:
            rank.ring.close()
    per_record_s = cpu / max(read, 1)
    return [
        Measured(
            "analyzer CPU, scaled to the full load",
            per_record_s * _RANKS * _RECORDS_PER_S * 100,
            "% of a core",
            3,
            "less",
        ),
        Measured("analyzer memory, peak", peak_mb, "MB", 120, "less"),
        Measured("load read", read / took, "records/s", 0.8 * _RANKS * _RECORDS_PER_S, "more"),
    ]


def main() -> None:
    """Measure, or with --write be the load."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="be the load: write rings into this folder")
    parser.add_argument("--seconds", type=float, default=_MEASURED_S, help="how long to measure or write")
    arguments = parser.parse_args()
    if arguments.write is not None:
        write(arguments.write, arguments.seconds)
    else:
        report("analyzer", measure(arguments.seconds))


if __name__ == "__main__":
    main()
