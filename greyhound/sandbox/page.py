"""The stand-in page: speeds of GPUs, links, input and storage, changed while jobs run (layout: standin_page.h)."""

import fcntl
import math
import mmap
import os
import stat
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from greyhound.sandbox.errors import SandboxError
from greyhound.sandbox.layout import SHM, existing
from greyhound.sandbox.page_layout import constants

VARIABLE = "GREYHOUND_STANDIN_PAGE"
MAX_DELAY_S = 3600.0


@dataclass(frozen=True)
class Link:
    """A directed link that is not at its best: bytes_per_s 0.0 means no limit."""

    source: str
    target: str
    bytes_per_s: float
    latency_s: float


class StandinPage:
    """One mapped page. GPUs are named NODE:INDEX (n1:0); every method raises SandboxError with the text at fault."""

    def __init__(self, path: Path, memory: mmap.mmap, descriptor: int) -> None:
        self.path = path
        self._memory = memory
        self._descriptor = descriptor

    @classmethod
    def create(cls, path: Path, names: Sequence[str]) -> Self:
        """Make a new page, everything healthy; refuses an existing file, bad or too many names."""
        k = constants()
        encoded = [_checked_name(name) for name in names]
        if not 1 <= len(names) <= k.MAX_GPUS or len(set(names)) < len(names):
            raise SandboxError(f"{len(names)} GPU names: give 1 to {k.MAX_GPUS} different ones")
        content = bytearray(k.FILE_BYTES)
        struct.pack_into("<I", content, k.OFF_VERSION, k.VERSION)
        struct.pack_into("<I", content, k.OFF_GPU_COUNT, len(names))
        for index, name in enumerate(encoded):
            struct.pack_into(f"<{k.NAME_BYTES}s", content, k.OFF_GPUS + index * k.GPU_BYTES + k.GPU_OFF_NAME, name)
            struct.pack_into("<d", content, k.OFF_GPUS + index * k.GPU_BYTES + k.GPU_OFF_SPEED, 1.0)
        _write_new(path, bytes(content), struct.pack("<Q", k.MAGIC), k.OFF_MAGIC)
        return cls.open(path)

    @classmethod
    def open(cls, path: Path, *, to_read: bool = False) -> Self:
        """Map an existing page for reading and writing, or only `to_read`."""
        k = constants()
        try:
            descriptor = os.open(path, (os.O_RDONLY if to_read else os.O_RDWR) | os.O_CLOEXEC)
        except OSError as error:
            raise SandboxError(f"stand-in page {path}: {error.strerror}") from None
        if os.fstat(descriptor).st_size != k.FILE_BYTES:
            os.close(descriptor)
            raise SandboxError(f"{path} is no stand-in page: its length is not {k.FILE_BYTES} bytes")
        access = mmap.ACCESS_READ if to_read else mmap.ACCESS_WRITE
        page = cls(path, mmap.mmap(descriptor, k.FILE_BYTES, access=access), descriptor)
        magic, version = page._unpack("<Q", k.OFF_MAGIC), page._unpack("<I", k.OFF_VERSION)
        if magic != k.MAGIC or version != k.VERSION or page._unpack("<I", k.OFF_GPU_COUNT) > k.MAX_GPUS:
            page.close()
            raise SandboxError(
                f"{path} is no stand-in page of version {k.VERSION} (magic {magic:#x}, version {version})"
            )
        return page

    def close(self) -> None:
        self._memory.close()
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def gpus(self) -> dict[str, float]:
        """Speed of each GPU by its name, in the page's order; 1.0 is healthy."""
        k = constants()
        starts = [k.OFF_GPUS + index * k.GPU_BYTES for index in range(self._unpack("<I", k.OFF_GPU_COUNT))]
        return {
            self._unpack(f"<{k.NAME_BYTES}s", start + k.GPU_OFF_NAME).split(b"\0")[0].decode(): self._unpack(
                "<d", start + k.GPU_OFF_SPEED
            )
            for start in starts
        }

    def links(self) -> list[Link]:
        """The directed links that have a limit or a latency."""
        names = list(self.gpus())
        found = [Link(a, b, *self._link(i, j)) for i, a in enumerate(names) for j, b in enumerate(names)]
        return [link for link in found if link.bytes_per_s or link.latency_s]

    def set_speed(self, gpu: str, speed: float) -> None:
        """Set a GPU's speed, 0.001 to 100 times the healthy one."""
        if not 0.001 <= speed <= 100:
            raise SandboxError(f"speed {speed}: give 0.001 to 100; 1 is healthy, 0.5 takes twice as long")
        k = constants()
        self._change([(k.OFF_GPUS + self._index(gpu) * k.GPU_BYTES + k.GPU_OFF_SPEED, speed)])

    def set_link(
        self, source: str, target: str, bytes_per_s: float = 0.0, latency_s: float = 0.0, *, one_way: bool = False
    ) -> None:
        """Set a link's bandwidth (0.0: no limit) and added latency, in both directions unless one_way."""
        if source == target:
            raise SandboxError(f"link {source} to {target}: name two different GPUs")
        for what, value in (("bandwidth", bytes_per_s), ("latency", latency_s)):
            if not 0 <= value < math.inf:
                raise SandboxError(f"{what} {value}: give a number from 0 on")
        a, b = self._index(source), self._index(target)
        ways = [(a, b)] if one_way else [(a, b), (b, a)]
        self._change([change for way in ways for change in self._link_changes(*way, bytes_per_s, latency_s)])

    def inputs(self) -> dict[str, float]:
        """Seconds by which the training data of each GPU's rank comes late, by its name."""
        return {name: float(self._unpack("<d", self._input_at(name))) for name in self.gpus()}

    def storage_s(self) -> float:
        """Seconds by which writing a checkpoint takes longer."""
        return float(self._unpack("<d", constants().OFF_STORAGE_S))

    def set_input(self, gpu: str, delay_s: float) -> None:
        """Let the training data of this GPU's rank come so much later, once an iteration."""
        self._change([(self._input_at(gpu), _checked_delay(delay_s))])

    def set_storage(self, delay_s: float) -> None:
        """Let every rank's part of a checkpoint take so much longer."""
        self._change([(constants().OFF_STORAGE_S, _checked_delay(delay_s))])

    def heal(self) -> None:
        """Every GPU at speed 1, every link without limit, input and storage at once."""
        k = constants()
        count = len(self.gpus())
        changes = [(k.OFF_GPUS + index * k.GPU_BYTES + k.GPU_OFF_SPEED, 1.0) for index in range(count)]
        changes += [(self._input_at(name), 0.0) for name in self.gpus()]
        changes += [(k.OFF_STORAGE_S, 0.0)]
        for i in range(count):
            changes += [change for j in range(count) for change in self._link_changes(i, j, 0.0, 0.0)]
        self._change(changes)

    def _link_changes(self, i: int, j: int, bytes_per_s: float, latency_s: float) -> list[tuple[int, float]]:
        k = constants()
        start = k.OFF_LINKS + (i * k.MAX_GPUS + j) * k.LINK_BYTES
        return [(start + k.LINK_OFF_BYTES_PER_S, bytes_per_s), (start + k.LINK_OFF_LATENCY_S, latency_s)]

    def _link(self, i: int, j: int) -> tuple[float, float]:
        (rate_at, _), (latency_at, _) = self._link_changes(i, j, 0.0, 0.0)
        return self._unpack("<d", rate_at), self._unpack("<d", latency_at)

    def _input_at(self, gpu: str) -> int:
        k = constants()
        return int(k.OFF_GPUS + self._index(gpu) * k.GPU_BYTES + k.GPU_OFF_INPUT_S)

    def _index(self, gpu: str) -> int:
        names = list(self.gpus())
        if gpu not in names:
            raise SandboxError(f"no GPU {gpu!r} in {self.path}; there are {', '.join(names)}")
        return names.index(gpu)

    def _unpack(self, form: str, offset: int) -> Any:
        return struct.unpack_from(form, self._memory, offset)[0]

    def _change(self, changes: Sequence[tuple[int, float]]) -> None:
        """Store doubles, each in one piece (readers do not lock), then count the change."""
        k = constants()
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        try:
            with memoryview(self._memory) as view:
                for offset, value in changes:
                    view[offset : offset + 8].cast("d")[0] = value
                generation = view[k.OFF_GENERATION : k.OFF_GENERATION + 8].cast("Q")
                generation[0] += 1
                generation.release()
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)


def bus_id(index: int) -> str:
    """The PCI bus id that the stand-in gives a node's GPU (runtime/device.c)."""
    return f"0000:{(index + 1) & 0xFF:02X}:00.0"


def find_page(explicit: Path | None = None) -> Path:
    """The page to change: `explicit`, else GREYHOUND_STANDIN_PAGE, else a sandbox's, else a launch's."""
    named = explicit or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None)
    if named is not None:
        if not named.exists():
            raise SandboxError(f"stand-in page {named} does not exist; is its sandbox or launch still running?")
        return named
    sandboxes = [layout.page for layout in existing() if layout.page.exists()]
    pages = sandboxes or sorted(filter(_is_ours, SHM.glob(f"greyhound-standin-{os.getuid()}-*.page")))
    if not pages:
        raise SandboxError("no stand-in page: `greyhound sandbox up` or `greyhound launch --standin` makes one")
    if len(pages) > 1:
        raise SandboxError(f"several stand-in pages; name one in {VARIABLE}: {', '.join(map(str, pages))}")
    return pages[0]


def _is_ours(page: Path) -> bool:
    """Anybody can lay a file or a link of that name into /dev/shm."""
    try:
        status = page.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()


def _checked_delay(delay_s: float) -> float:
    if not 0 <= delay_s <= MAX_DELAY_S:
        raise SandboxError(f"delay {delay_s}: give 0 to {MAX_DELAY_S:.0f} seconds")
    return delay_s


def _checked_name(name: str) -> bytes:
    node, _, index = name.rpartition(":")
    encoded = name.encode()
    if not node or not index.isdecimal() or len(encoded) >= constants().NAME_BYTES:
        raise SandboxError(f"GPU name {name!r}: give NODE:INDEX, like n1:0, in under {constants().NAME_BYTES} bytes")
    return encoded


def _write_new(path: Path, content: bytes, magic: bytes, magic_offset: int) -> None:
    """Write a file whose magic comes last: who sees the magic sees the rest."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise SandboxError(f"cannot make stand-in page {path}: {error.strerror}") from None
    try:
        os.fchmod(descriptor, 0o644)
        os.posix_fallocate(descriptor, 0, len(content))
        os.pwrite(descriptor, content, 0)
        os.pwrite(descriptor, magic, magic_offset)
    except OSError as error:
        path.unlink()
        raise SandboxError(f"cannot write stand-in page {path}: {error.strerror}") from None
    finally:
        os.close(descriptor)
