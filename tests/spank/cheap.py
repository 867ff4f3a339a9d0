"""A cheap rank for whole paths with the real hook and the real node process: C, over a fake NCCL that only counts."""

import json
import subprocess
from pathlib import Path

from tests.hook.conftest import NATIVE as HOOK_NATIVE
from tests.hook.conftest import shared

NATIVE = Path(__file__).with_name("native")
DONE = 4
"""The exit code of a rank that was told to end."""


def link(out: Path, *arguments: object) -> Path:
    """Compile and link with warnings as errors."""
    command = ["cc", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-o", out, *arguments]
    subprocess.run([str(word) for word in command], check=True)
    return out


def build_rank(folder: Path) -> Path:
    """`rank FILE`: makes a communicator and calls NCCL until FILE is there. Its NCCL lies beside it."""
    nccl = shared(folder / "libnccl.so.2", HOOK_NATIVE / "fake_nccl.c", soname="libnccl.so.2")
    return link(folder / "rank", NATIVE / "rank.c", nccl, "-Wl,-rpath,$ORIGIN")


def read_json(path: Path) -> dict[str, object]:
    """Empty while there is nothing whole."""
    try:
        found: dict[str, object] = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return found


def end_event(events: Path) -> dict[str, object]:
    """The data of the one `end` event."""
    (end,) = [event["data"] for event in map(json.loads, events.read_text().splitlines()) if event["kind"] == "end"]
    return dict(end)
