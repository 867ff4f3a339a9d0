"""Evidence of why a node's ranks may be slow, read every few seconds, always; the last hour is kept.

    collector = EvidenceCollector()                     # starts its threads; reads at once
    collector.follow([Target(key, pid, bus), ...])      # now and then: the living ranks; never waits
    collector.between(begin_ns, end_ns)                 # wall clock; localize.cause_evidence.Evidence
    collector.identities(node)                          # by bus id: what a repair ticket needs, as far as known yet
    collector.stop()

On the way to the master: `cause_evidence.as_message` and `from_message`; there `cause.compare`.

Nothing here raises into the analyzer or holds it up: each source has a thread of its own, since NVML's calls and files
of a sick adapter may block for good. What isn't answered is n/a, with the reason in `Evidence.absent`.
"""

import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path

from greyhound.control.evidence_files import Source, Target
from greyhound.control.evidence_identity import Hardware
from greyhound.control.evidence_linux import LinuxSource
from greyhound.control.evidence_nvml import NvmlSource
from greyhound.control.evidence_rdma import RdmaSource
from greyhound.localize.cause_evidence import EDGE_NS, Evidence, Reading, summarise
from greyhound.localize.identity import Identity, identify

__all__ = ["EvidenceCollector", "Target"]

PERIOD_S = 5.0
KEPT_S = 3600.0
SILENT_S = 30.0  # without an answer for so long a source is said to hang
MOST_TARGETS = 1024


class _Reader:
    """One source's thread and the readings that it made (CLOCK_MONOTONIC)."""

    def __init__(self, source: Source, period_s: float, kept_s: float, stopped: threading.Event) -> None:
        self.source = source
        self.targets: tuple[Target, ...] = ()
        self._period_s = period_s
        self._stopped = stopped
        self._lock = threading.Lock()
        self._readings: deque[Reading] = deque(maxlen=max(int(kept_s / period_s), 2))
        self._absent: Mapping[str, str] = {source.name: "not read yet"}
        self._begun_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=f"gh-{source.name}", daemon=True)

    def start(self) -> None:
        """Where no thread can be had, nothing is known of this source."""
        try:
            self._thread.start()
        except RuntimeError as error:
            self._absent = {self.source.name: f"no thread for it: {error}"}

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._begun_s = time.monotonic()
            rows, absent = self.source.read(self.targets)
            with self._lock:
                self._readings.append(Reading(time.monotonic_ns(), rows))
                self._absent = absent
            self._stopped.wait(self._period_s)

    def state(self) -> tuple[list[Reading], dict[str, str]]:
        """The readings, and why something isn't known."""
        with self._lock:
            readings, absent = list(self._readings), dict(self._absent)
        silent_s = time.monotonic() - self._begun_s
        if self._thread.ident is not None and not self._thread.is_alive():
            absent[self.source.name] = "its reader ended; node.log in the step directory says why"
        elif silent_s > self._period_s + SILENT_S:
            absent[self.source.name] = f"no answer for {silent_s:.0f} s"
        return readings, absent


class EvidenceCollector:
    """Threads that read, and what they read in the last hour. Bounded in memory; not for several threads."""

    def __init__(
        self,
        sources: Iterable[Source] | None = None,
        period_s: float = PERIOD_S,
        kept_s: float = KEPT_S,
        root: Path = Path("/"),
    ) -> None:
        """`sources` other than those of this machine, and `root` other than its, are for tests."""
        self._stopped = threading.Event()
        self._nvml = NvmlSource()
        self._hardware = Hardware(root)
        ours: list[Source] = [LinuxSource(root), RdmaSource(root), self._nvml, self._hardware]
        given = ours if sources is None else sources
        self._readers = [_Reader(source, period_s, kept_s, self._stopped) for source in given]
        for reader in self._readers:
            reader.start()

    def follow(self, targets: Iterable[Target]) -> None:
        """The ranks that live now; the next readings are of them."""
        wanted = tuple(targets)[:MOST_TARGETS]
        for reader in self._readers:
            reader.targets = wanted

    def between(self, begin_ns: int, end_ns: int) -> Evidence:
        """What was read from `begin_ns` to `end_ns` (wall clock as it is now, so that steps of it don't matter)."""
        shift_ns = time.time_ns() - time.monotonic_ns()
        begin_ns, end_ns = begin_ns - shift_ns, end_ns - shift_ns
        readings: list[Reading] = []
        absent: dict[str, str] = {}
        for reader in self._readers:
            known, why = reader.state()
            readings += [row for row in known if begin_ns - EDGE_NS <= row.t_ns <= end_ns + EDGE_NS]
            absent |= why
        return summarise(sorted(readings, key=lambda reading: reading.t_ns), begin_ns, end_ns, absent)

    def identities(self, node: str) -> dict[str, Identity]:
        """Each GPU by normal bus id; `node` as Slurm names it."""
        gpus, paths, ports = dict(self._nvml.gpus), self._hardware.paths, self._hardware.ports
        buses = [*gpus, *(bus for bus in paths if bus not in gpus)]
        switch = self._hardware.switches.get(node, "")
        return {bus: identify(node, bus, gpus, paths, ports, switch) for bus in buses}

    def stop(self) -> None:
        """Read no more; a thread that hangs is left behind."""
        self._stopped.set()
