"""The certificate of a passed self-test, one per (GPU driver, CUDA, NCCL, torch, hook).

Later parts that touch a running job (freeze, topology changes) stay off on real GPUs without one.
"""

import hashlib
import json
import re
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from greyhound.config import native_dir

VERSION = 1
FOLDER = "certificates"


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
    """Write the certificate by rename; OSError if the folder can't be written."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / platform.file_name
    text = json.dumps({"v": VERSION, "platform": asdict(platform), **findings}, indent=1)
    with tempfile.NamedTemporaryFile("w", dir=folder, prefix=".", delete=False) as file:
        file.write(text + "\n")
    Path(file.name).chmod(0o644)
    Path(file.name).replace(path)
    return path


def find(folder: Path, platform: Platform) -> dict[str, Any] | None:
    """The certificate of this very platform, None if there is none that can be read."""
    try:
        found = json.loads((folder / platform.file_name).read_text())
    except (OSError, ValueError):
        return None
    fits = isinstance(found, dict) and found.get("v") == VERSION and found.get("platform") == asdict(platform)
    return found if fits else None
