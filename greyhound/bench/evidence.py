"""What reading evidence takes: python -m greyhound.bench.evidence.

The ranks are this process, many times over, with as many threads as a training has; a round stands for five seconds.
What NVML takes is measured where there is a driver.
"""

import os
import threading
import time
from statistics import mean

from greyhound.bench.output import Measured, report
from greyhound.control.evidence import PERIOD_S
from greyhound.control.evidence_files import Source, Target
from greyhound.control.evidence_linux import LOOK_ROUNDS, LinuxSource
from greyhound.control.evidence_nvml import NvmlSource
from greyhound.control.evidence_rdma import RdmaSource

_RANKS = (8, 512)
_THREADS = 200
_ROUNDS = 3 * LOOK_ROUNDS


def _share(source: Source, ranks: int) -> float:
    """Of a core, in per cent."""
    targets = tuple(Target(f"rank{number}", os.getpid()) for number in range(ranks))
    took_s = []
    for _ in range(_ROUNDS):
        begin_s = time.thread_time()
        source.read(targets)
        took_s.append(time.thread_time() - begin_s)
    return 100 * mean(took_s) / PERIOD_S


def measure() -> list[Measured]:
    """Share of a core, by number of ranks."""
    stop = threading.Event()
    for _ in range(_THREADS):
        threading.Thread(target=stop.wait, daemon=True).start()
    figures = [
        Measured(
            f"Linux evidence of {ranks} ranks of {_THREADS} threads",
            _share(LinuxSource(), ranks),
            "% of a core",
            1,
            "less",
        )
        for ranks in _RANKS
    ]
    figures.append(Measured("RDMA evidence", _share(RdmaSource(), 8), "% of a core", 1, "less"))
    nvml = NvmlSource()
    nvml.read(())
    if nvml.gpus:
        figures.append(Measured(f"NVML evidence of {len(nvml.gpus)} GPUs", _share(nvml, 0), "% of a core", 1, "less"))
    stop.set()
    return figures


if __name__ == "__main__":
    report("evidence", measure())
