"""Files in folders that strangers can write beside: opened without following links, written whole or not at all."""

import errno
import os
import secrets
import stat
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK the opening of a FIFO waits for its other end, for good.
_SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def why_not_ours(path: Path) -> str:
    """Why a folder isn't one that only this user can write to, or nothing; OSError where it can't be looked at."""
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode):
        return f"{path} is no directory"
    if status.st_uid != os.geteuid():
        return f"{path} belongs to uid {status.st_uid}, not to us (uid {os.geteuid()})"
    if status.st_mode & _WRITABLE_BY_OTHERS:
        return f"{path} can be written by others (mode {stat.S_IMODE(status.st_mode):04o})"
    return ""


def open_folder(path: Path, uid: int) -> int:
    """A descriptor of a real directory of `uid`; OSError for a link, another's or none."""
    fd = os.open(path, _FOLDER)
    if os.fstat(fd).st_uid != uid:
        os.close(fd)
        raise PermissionError(errno.EPERM, f"folder belongs to another user than uid {uid}", str(path))
    return fd


def _regular(fd: int, path: Path | str) -> int:
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return fd


def open_to_append(path: Path, mode: int = 0o640) -> int:
    """A descriptor that appends to a regular file in a folder of our own, made if it isn't there; OSError."""
    folder = open_folder(path.parent, os.geteuid())
    try:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | _SAFE
        return _regular(os.open(path.name, flags, mode, dir_fd=folder), path)
    finally:
        os.close(folder)


def open_to_read(path: Path | str, owner: int | None = None) -> int:
    """A descriptor of a regular file, in a folder of `owner` where that is given; OSError, never a wait."""
    if owner is None:
        return _regular(os.open(path, os.O_RDONLY | _SAFE), path)
    path = Path(path)
    folder = open_folder(path.parent, owner)
    try:
        return _regular(os.open(path.name, os.O_RDONLY | _SAFE, dir_fd=folder), path)
    finally:
        os.close(folder)


def write_all(fd: int, content: bytes) -> None:
    """Write all of it; a full disk takes a part and refuses the rest, which is an OSError here."""
    while content:
        written = os.write(fd, content)
        if written == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        content = content[written:]


def write_atomically(path: Path, text: str, mode: int = 0o640) -> None:
    """Replace `path`, in a folder of our own, in one step: a reader sees the old or the new, never a half. OSError."""
    folder = open_folder(path.parent, os.geteuid())
    partial = f".{path.name}.{secrets.token_hex(8)}"
    try:
        fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE, mode, dir_fd=folder)
        try:
            write_all(fd, text.encode(errors="replace"))
            os.rename(partial, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            os.unlink(partial, dir_fd=folder)
            raise
        finally:
            os.close(fd)
    finally:
        os.close(folder)
