"""Install torch: the CPU build where pip is offered one, else the CUDA build, after checking the disk."""

import argparse
import json
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

PREFERRED = "torch==2.13.0"
FALLBACK = "torch>=2.6"
CUDA_GUESS_BYTES = 3_000_000_000
UNPACK_FACTOR = 2.2  # wheels unpack to about twice their size, and pip keeps the download while it does


def plan(python: Path, requirement: str) -> list[dict[str, object]] | None:
    """Return pip's plan (its `install` report entries) for `requirement`, or None where it can't be had."""
    command = [
        str(python),
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
        "-q",
        "--dry-run",
        "--report",
        "-",
        requirement,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return None
    entries: list[dict[str, object]] = json.loads(done.stdout)["install"]
    return entries


def url_of(entry: dict[str, object]) -> str:
    info = entry["download_info"]
    assert isinstance(info, dict)
    return str(info["url"])


def is_cpu(entries: list[dict[str, object]]) -> bool:
    """A CPU build brings no nvidia package with it."""
    return not any("/nvidia" in url_of(e) or "cuda" in url_of(e).rsplit("/", 1)[-1] for e in entries)


def size_bytes(url: str) -> int:
    if url.startswith("file:"):
        path = Path(urllib.request.url2pathname(url[len("file:") :].removeprefix("//")))
        return path.stat().st_size if path.exists() else 0
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=20) as answer:
            return int(answer.headers.get("Content-Length") or 0)
    except (urllib.error.URLError, ValueError, TimeoutError):
        return 0


def check_disk(venv: Path, download_bytes: int) -> None:
    need = int(download_bytes * (1 + UNPACK_FACTOR))
    free = shutil.disk_usage(venv).free
    if free < need:
        sys.exit(
            f"greyhound install: torch needs about {need / 1e9:.1f} GB of disk below {venv}, "
            f"{free / 1e9:.1f} GB are free; make room, or put a CPU build within pip's reach"
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--venv", type=Path, required=True)
    venv = parser.parse_args().venv
    python = venv / "bin" / "python"
    requirement, entries = PREFERRED, plan(python, PREFERRED)
    if entries is None:
        requirement, entries = FALLBACK, plan(python, FALLBACK)
    if entries is None:
        sys.exit(f"greyhound install: pip offers neither {PREFERRED} nor {FALLBACK} for {sys.version.split()[0]}")
    total = sum(size_bytes(url_of(e)) for e in entries)
    if is_cpu(entries):
        print(f"greyhound install: {requirement}, a CPU build, {total / 1e6:.0f} MB", flush=True)
    else:
        total = max(total, CUDA_GUESS_BYTES)
        print(
            f"greyhound install: only a CUDA build of {requirement} is on offer: {total / 1e9:.1f} GB to download, "
            f"about {total * UNPACK_FACTOR / 1e9:.0f} GB on disk; this takes a while",
            flush=True,
        )
    check_disk(venv, total)
    command = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--progress-bar", "on", requirement]
    sys.exit(subprocess.run(command, check=False).returncode)


if __name__ == "__main__":
    main()
