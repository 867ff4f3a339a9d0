"""Checks of the host itself: the C parts, Redis, shared memory, GPUs, the record directory."""

import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from greyhound.doctor.finding import Finding, Level

SHM = Path("/dev/shm")
RING_BYTES = 5 << 20
RANKS_A_NODE = 16
REDIS_MAJOR = 6
TIMEOUT_S = 10.0


def check_hook(native: Path) -> Iterator[Finding]:
    """Whether a program starts under the hook, and says nothing of it."""
    hook = native / "libgreyhound_hook.so"
    if not hook.is_file():
        yield Finding("hook", Level.FAIL, f"{hook} is missing", "pip install '.[control]' with a C compiler at hand")
        return
    program = shutil.which("true") or "/bin/true"
    environment = {"LD_PRELOAD": str(hook), "PATH": os.defpath}
    try:
        done = subprocess.run(
            [program], env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        yield Finding("hook", Level.FAIL, f"{program} under {hook}: {error}", "build it again on this machine")
        return
    if done.returncode != 0 or done.stderr:
        said = done.stderr.strip()[:200] or f"exit code {done.returncode}"
        yield Finding("hook", Level.FAIL, f"{program} under {hook}: {said}", "build it again on this machine")
    else:
        yield Finding("hook", Level.OK, f"{hook} loads")


def check_parts(native: Path, package: Path) -> Iterator[Finding]:
    """The waiter, beside the plugin, and the ring reader, in the Python package: without them a node is unmonitored."""
    for path, need in ((native / "greyhound_waiter", os.X_OK), (package / "libgreyhound_reader.so", os.R_OK)):
        if not path.is_file() or not os.access(path, need):
            yield Finding("C parts", Level.FAIL, f"{path} is missing or can't be used", "install Greyhound again")
            return
    yield Finding("C parts", Level.OK, f"waiter in {native}, reader in {package}")


def check_redis(server: str) -> Iterator[Finding]:
    """redis-server, in a release that knows ACLs."""
    path = shutil.which(server) or shutil.which(server, path="/usr/bin:/usr/local/bin:/usr/sbin:/opt/bin")
    mend = "install it (Debian: apt install redis-server) or name it with redis_server=PATH in plugstack.conf"
    if path is None:
        yield Finding("redis-server", Level.FAIL, f"{server} not found", mend)
        return
    try:
        text = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        yield Finding("redis-server", Level.FAIL, f"{path}: {error}", mend)
        return
    version = re.search(r"v=(\d+)\.(\d+)", text)
    if version is None or int(version[1]) < REDIS_MAJOR:
        shown = version[0] if version else text.strip()[:80]
        yield Finding("redis-server", Level.FAIL, f"{path}: {shown}", f"Greyhound needs {REDIS_MAJOR}.0 or newer")
    else:
        yield Finding("redis-server", Level.OK, f"{path} {version[1]}.{version[2]}")


def check_shared_memory(shm: Path = SHM) -> Iterator[Finding]:
    """Room for the rings of a full node."""
    if not shm.is_dir():
        yield Finding("shared memory", Level.FAIL, f"{shm} is missing", "mount a tmpfs there")
        return
    space = os.statvfs(shm)
    free, needed = space.f_bavail * space.f_frsize, RANKS_A_NODE * RING_BYTES
    if not shm.stat().st_mode & stat.S_ISVTX:
        yield Finding("shared memory", Level.WARN, f"{shm} isn't sticky", f"chmod 1777 {shm}")
    level = Level.OK if free >= needed else Level.WARN
    mend = "" if level is Level.OK else "make room there, or mount it larger"
    text = f"{free >> 20} MiB free in {shm}; {RANKS_A_NODE} ranks take {needed >> 20}"
    yield Finding("shared memory", level, text, mend)


def check_gpus() -> Iterator[Finding]:
    """NVML, for cause evidence; a host without GPUs is no fault."""
    try:
        import pynvml
    except ImportError:
        yield Finding("NVML", Level.WARN, "n/a: pynvml isn't installed", "pip install nvidia-ml-py")
        return
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        yield Finding("NVML", Level.OK, f"n/a: {error} (normal on a host without GPUs)")
        return
    try:
        count = pynvml.nvmlDeviceGetCount()
        yield Finding("NVML", Level.OK, f"{count} GPUs, driver {pynvml.nvmlSystemGetDriverVersion()}")
    except pynvml.NVMLError as error:
        yield Finding("NVML", Level.WARN, f"n/a: {error}", "check the driver (nvidia-smi)")
    finally:
        pynvml.nvmlShutdown()


def check_records(record_dir: Path, is_shared: bool = False) -> Iterator[Finding]:
    """Whether this user's records can be written, and strangers' folders not.

    One that all users share (``is_shared``) isn't made here: root's own would be of no use to them.
    """
    mend = f"make it for all users: install -d -m 1777 {record_dir}"
    try:
        if not is_shared:
            record_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=record_dir, prefix=".doctor-"):
            pass
    except OSError as error:
        yield Finding("record directory", Level.FAIL, f"{record_dir}: {error.strerror}", mend)
        return
    mode = record_dir.stat().st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        yield Finding("record directory", Level.WARN, f"{record_dir} is open to all and not sticky", mend)
    elif is_shared and not mode & (stat.S_IWOTH | stat.S_IWGRP):
        yield Finding("record directory", Level.WARN, f"{record_dir}: nobody but its owner can write there", mend)
    else:
        yield Finding("record directory", Level.OK, f"{record_dir} can be written")
