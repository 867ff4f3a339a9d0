"""Numbers of the stand-in page, from the same header that the C side includes."""

import functools
import re
from pathlib import Path
from types import SimpleNamespace

import greyhound
from greyhound.sandbox.errors import SandboxError

_DEFINE = re.compile(r"^#define (GHS_\w+) (0x[0-9A-Fa-f]+|\d+)\b", re.MULTILINE)
_PACKAGE = Path(greyhound.__file__).resolve().parent
# The second one is there in a source tree before the stand-in was built.
CANDIDATES = (
    _PACKAGE / "_native" / "standin" / "standin_page.h",
    _PACKAGE.parent / "hook" / "standin" / "include" / "standin_page.h",
)
NEEDED = [
    "MAGIC",
    "VERSION",
    "MAX_GPUS",
    "NAME_BYTES",
    "OFF_MAGIC",
    "OFF_VERSION",
    "OFF_GPU_COUNT",
    "OFF_GENERATION",
    "OFF_STORAGE_S",
    "OFF_GPUS",
    "GPU_BYTES",
    "GPU_OFF_NAME",
    "GPU_OFF_SPEED",
    "GPU_OFF_INPUT_S",
    "OFF_LINKS",
    "LINK_BYTES",
    "LINK_OFF_BYTES_PER_S",
    "LINK_OFF_LATENCY_S",
    "FILE_BYTES",
]


@functools.cache
def constants() -> SimpleNamespace:
    """The GHS_* numbers without their prefix; SandboxError if the stand-in was not built."""
    header = next((path for path in CANDIDATES if path.exists()), None)
    if header is None:
        raise SandboxError(f"no {CANDIDATES[0]}: the stand-in is not built; `make -C hook/standin` builds it")
    return parse(header.read_text(), str(header))


def parse(text: str, origin: str) -> SimpleNamespace:
    """GHS_* defines of a header text; SandboxError names those that are missing."""
    numbers = {name.removeprefix("GHS_"): int(value, 0) for name, value in _DEFINE.findall(text)}
    missing = [name for name in NEEDED if name not in numbers]
    if missing:
        raise SandboxError(f"{origin} lacks GHS_{', GHS_'.join(missing)}; it belongs to another release of Greyhound")
    return SimpleNamespace(**numbers)
