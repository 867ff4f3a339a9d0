"""A recorded ring in one file: the calls of one process with the facts that identify it, compressed.

The file is a numpy .npz (a zip archive) with the members ``facts`` (JSON text), ``records`` (RECORD_DTYPE, in order),
``comms`` (COMM_DTYPE) and ``gaps`` (int64: indices into ``records`` before which calls were lost).
"""

import json
import os
import tokenize
import zipfile
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from greyhound.trace import layout
from greyhound.trace.records import COMM_DTYPE, RECORD_DTYPE
from greyhound.trace.ring import RingHeader

VERSION = 1
MAGIC = b"PK\x03\x04"
"""The first bytes of a dump."""

_KEPT_FACTS = (
    "pid",
    "pid_start",
    "boot_id",
    "world_rank",
    "local_rank",
    "slurm_procid",
    "node_index",
    "gpu_bus_id",
    "created_ns",
    "created_realtime_ns",
    "nccl_version",
    "cuda_device",
)


# What zipfile and numpy raise for an archive that isn't what its names and headers say.
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    tokenize.TokenError,
    EOFError,
    KeyError,
    OverflowError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
)


class DumpError(ValueError):
    """The file is no dump that can be read; the message says why and what to do."""


@dataclass(frozen=True)
class Dump:
    """What a dump holds; ``facts`` are those of the ring's header plus ``dump`` and ``layout``, the versions."""

    facts: dict[str, Any]
    records: NDArray[np.void]
    comms: NDArray[np.void]
    gaps: NDArray[np.int64]


class DumpWriter:
    """Collects the records of one ring, poll by poll, and writes them at the end."""

    def __init__(self, header: RingHeader) -> None:
        """``header`` of the ring; ``facts`` may be added to (job, step, node name)."""
        values = asdict(header)
        self.facts: dict[str, Any] = {"dump": VERSION, "layout": layout.GH_LAYOUT}
        self.facts |= {name: values[name] for name in _KEPT_FACTS}
        self._chunks: list[NDArray[np.void]] = []
        self._gaps: list[int] = []
        self.count = 0
        self.held_bytes = 0
        """Memory that the calls take so far."""

    def add(self, records: NDArray[np.void], lost: int) -> None:
        """Append what ``Ring.read`` answered."""
        if lost:
            self.gap()
        if len(records):
            self._chunks.append(records)
            self.count += len(records)
            self.held_bytes += records.nbytes

    def gap(self) -> None:
        """Calls are missing here."""
        if self.count and self._gaps[-1:] != [self.count]:
            self._gaps.append(self.count)

    def save(self, path: Path, comms: NDArray[np.void]) -> None:
        """Write the file, replacing what is there only when it is whole. OSError passes through."""
        records = np.concatenate(self._chunks) if self._chunks else np.empty(0, dtype=RECORD_DTYPE)
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            with part.open("wb") as file:
                np.savez_compressed(
                    file,
                    facts=np.frombuffer(json.dumps(self.facts).encode(), dtype=np.uint8),
                    records=records,
                    comms=comms,
                    gaps=np.asarray(self._gaps, dtype=np.int64),
                )
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)


def read_dump(file: Path | BinaryIO) -> Dump:
    """Read a dump; nothing in it is executed. Raises DumpError; OSError passes through."""
    try:
        with np.load(file, allow_pickle=False) as archive:
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise DumpError("not a recorded dump of Greyhound")
            return _checked(archive)
    except DumpError:
        raise
    except MemoryError as error:
        raise DumpError("a dump that needs more memory than there is") from error
    except _DAMAGE as error:
        raise DumpError(f"not a recorded dump of Greyhound, or a damaged one: {error}") from error


def _checked(archive: Any) -> Dump:
    missing = [name for name in ("facts", "records", "comms", "gaps") if name not in archive.files]
    if missing:
        raise DumpError(f"not a recorded dump of Greyhound: it lacks {', '.join(missing)}")
    facts = _facts(archive["facts"])
    records, comms, gaps = archive["records"], archive["comms"], archive["gaps"]
    for name, array, dtype in (("records", records, RECORD_DTYPE), ("comms", comms, COMM_DTYPE)):
        if array.dtype != dtype or array.ndim != 1:
            raise DumpError(
                f"its {name} are of ring layout {facts.get('layout')}, this greyhound reads {layout.GH_LAYOUT}"
            )
    if gaps.dtype != np.int64 or gaps.ndim != 1:
        raise DumpError("a damaged dump (gaps); record it again")
    return Dump(facts, records, comms, gaps)


def _facts(array: NDArray[np.uint8]) -> dict[str, Any]:
    facts = json.loads(array.astype(np.uint8).tobytes())
    if not isinstance(facts, dict) or facts.get("dump") != VERSION:
        found = facts.get("dump") if isinstance(facts, dict) else None
        raise DumpError(
            f"a dump of version {found}, this greyhound reads {VERSION}; install the same version everywhere"
        )
    return facts
