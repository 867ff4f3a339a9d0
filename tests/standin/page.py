"""A page of speeds and links as the header defines it, written with struct alone."""

import re
import struct
from pathlib import Path

HEADER = Path(__file__).resolve().parents[2] / "hook" / "standin" / "include" / "standin_page.h"
GHS = {
    name: int(number, 0)
    for name, number in re.findall(r"^#define GHS_(\w+) (0x[0-9a-f]+|\d+)\b", HEADER.read_text(), re.MULTILINE)
}


class Page:
    """`names` are GPUs "NODE:INDEX", healthy and without limits at first."""

    def __init__(self, path: Path, names: list[str]) -> None:
        self.path, self.names = path, names
        path.write_bytes(bytes(GHS["FILE_BYTES"]))
        for i, name in enumerate(names):
            at = GHS["OFF_GPUS"] + i * GHS["GPU_BYTES"]
            self._write(at, name.encode())
            self.speed(i, 1.0)
        self._write(GHS["OFF_MAGIC"], struct.pack("<QII", GHS["MAGIC"], GHS["VERSION"], len(names)))

    def _write(self, at: int, data: bytes) -> None:
        with open(self.path, "r+b") as file:
            file.seek(at)
            file.write(data)

    def speed(self, gpu: int, speed: float) -> None:
        self._write(GHS["OFF_GPUS"] + gpu * GHS["GPU_BYTES"] + GHS["GPU_OFF_SPEED"], struct.pack("<d", speed))

    def link(self, i: int, j: int, bytes_per_s: float = 0.0, latency_s: float = 0.0) -> None:
        at = GHS["OFF_LINKS"] + (i * GHS["MAX_GPUS"] + j) * GHS["LINK_BYTES"]
        self._write(at, struct.pack("<dd", bytes_per_s, latency_s))
