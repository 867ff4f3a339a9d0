"""The certificate of a passed self-test, one per (GPU driver, CUDA, NCCL, torch, hook).

Later parts that touch a running job (freeze, topology changes) stay off on real GPUs without one.
"""

import hashlib
import json
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from greyhound.config import native_dir
from greyhound.control.files import open_to_read, why_not_ours, write_atomically

VERSION = 1
MOST_BYTES = 1 << 20


def folder_below(record_dir: Path) -> Path:
    """Where this user's certificates lie below a record directory, which may be open to all."""
    return record_dir / f"certificates-{os.getuid()}"


@dataclass(frozen=True)
class Platform:
    """What a certificate is about; "none" where a part is absent (the stand-in has no driver)."""

    driver: str
    cuda: str
    nccl: str
    torch: str
    hook: str

    @property
    def file_name(self) -> str:
        """The same platform gives the same name."""
        text = "_".join(asdict(self).values())
        return re.sub(r"[^A-Za-z0-9.+-]", "_", text) + ".json"


def hook_digest() -> str:
    """The first 12 hex digits of the hook library's SHA-256."""
    return hashlib.sha256((native_dir() / "libgreyhound_hook.so").read_bytes()).hexdigest()[:12]


def driver_version() -> str:
    """The kernel driver's release, from /proc; "none" without one."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        return "none"
    found = re.search(r"Kernel Module.*?(\d+\.\d+(?:\.\d+)?)", text)
    return found.group(1) if found else "unknown"


def here(nccl_version: int) -> Platform:
    """The platform of this process; imports torch."""
    import torch

    return Platform(
        driver_version(), str(torch.version.cuda or "none"), str(nccl_version), torch.__version__, hook_digest()
    )


def write(folder: Path, platform: Platform, findings: dict[str, Any]) -> Path:
    """Write the certificate in one step; OSError if the folder can't be written, or if others can write there."""
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    why = why_not_ours(folder)
    if why:
        raise PermissionError(why)
    path = folder / platform.file_name
    write_atomically(path, json.dumps({"v": VERSION, "platform": asdict(platform), **findings}, indent=1) + "\n", 0o644)
    return path


def find(folder: Path, platform: Platform) -> dict[str, Any] | None:
    """The certificate of this very platform, None if there is none that can be read, or if others can write there."""
    try:
        if why_not_ours(folder):
            return None
        with os.fdopen(open_to_read(folder / platform.file_name, os.geteuid()), "rb") as file:
            found = json.loads(file.read(MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    fits = isinstance(found, dict) and found.get("v") == VERSION and found.get("platform") == asdict(platform)
    return found if fits else None
