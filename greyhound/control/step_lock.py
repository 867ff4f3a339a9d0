"""The step directory of a launch: made, locked, and removed only by who made it (as spank/stepdir.c does for Slurm).

The lock, an flock on the directory, says that its launch lives. A pid can't say so: launches in several containers
may share /dev/shm and not their pids.
"""

import contextlib
import errno
import fcntl
import os
import shutil
import time
from pathlib import Path

from greyhound.control.files import open_folder

TRIES = 10
WAIT_S = 0.02


class TakenError(OSError):
    """A directory of that name belongs to another launch, which lives, or to another user."""


def lock(path: Path) -> int | None:
    """A locked descriptor of this user's directory `path`; None while another holds it, or where it was removed."""
    try:
        fd = open_folder(path, os.geteuid())
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Between the opening and the lock, another may have removed it and yet another made it anew.
        if os.path.samestat(os.fstat(fd), path.lstat()):
            return fd
    except OSError:
        pass
    os.close(fd)
    return None


def is_held(path: Path, uid: int) -> bool:
    """Whether a step or launch of `uid` that lives holds this directory; nothing is changed by asking."""
    try:
        fd = open_folder(path, uid)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def make(path: Path) -> int:
    """Make `path` anew, mode 0700, in place of what a dead launch left there; its locked descriptor.

    TakenError where somebody else lives there, OSError where none can be made.
    """
    for _ in range(TRIES):
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
            fd = lock(path)
            if fd is not None:
                return fd
        if not remove_dead(path):
            time.sleep(WAIT_S)  # perhaps only a sweep of another launch, which is looking at it
    raise TakenError(errno.EEXIST, "belongs to a launch that still runs, or to another user", str(path))


def remove_dead(path: Path) -> bool:
    """Remove the directory unless its launch lives or it isn't this user's; whether it is gone."""
    fd = lock(path)
    if fd is None:
        return not os.path.lexists(path)
    try:
        shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(fd)
    return not os.path.lexists(path)


def remove(path: Path, fd: int) -> None:
    """Remove the directory that `fd` is the lock of, then let go of the lock."""
    shutil.rmtree(path, ignore_errors=True)
    os.close(fd)
