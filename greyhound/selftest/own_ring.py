"""This process's own ring, read from inside: what the hook wrote about the calls just made."""

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from greyhound.trace import layout
from greyhound.trace.records import top_level
from greyhound.trace.ring import Ring, RingError


class OwnRing:
    """The ring of this process; made by the hook at the first communicator."""

    def __init__(self) -> None:
        """RingError with the mend if this process has none: it isn't under the hook."""
        directory = os.environ.get("GREYHOUND_DIR")
        if not directory:
            raise RingError("GREYHOUND_DIR isn't set: start the self-test with srun --greyhound=observe")
        rings = sorted(Path(directory).glob(f"ring.{os.getpid()}.*"))
        if not rings:
            raise RingError(f"no ring of this process in {directory}: the hook saw no communicator of it")
        self._ring = Ring.open(rings[-1])

    def read(self) -> NDArray[np.void]:
        """The data calls since the last read, in order; RingError if some were overwritten."""
        records, lost = self._ring.read()
        if lost:
            raise RingError(f"{lost} records were overwritten; raise GREYHOUND_RING_RECORDS")
        return top_level(records)

    def read_all(self) -> NDArray[np.void]:
        """All records since the last read, whatever they are."""
        return self._ring.read()[0]

    def mute(self, muted: bool) -> None:
        """Switch recording off or on, as the analyzer does; the calls pass in both cases."""
        self._ring.set_mode(layout.GH_MODE_MUTED if muted else layout.GH_MODE_OBSERVE)

    @property
    def nccl_version(self) -> int:
        """ncclGetVersion's number."""
        return self._ring.header.nccl_version
