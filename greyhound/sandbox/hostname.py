"""The name under which the daemons run: Slurm listens on the address that the host's own name resolves to.

Told not to listen everywhere (CommunicationParameters=NoInAddrAny), slurmd, slurmctld, slurmdbd and srun look their
host's name up. Where that gives no loopback address (containers, many cloud images), they get a UTS namespace of their
own in which the host is called `localhost`; that needs root.
"""

import ctypes
import ipaddress
import os
import socket
from collections.abc import Callable

from greyhound.sandbox.errors import SandboxError

_CLONE_NEWUTS = 0x04000000
LOCAL = "localhost"


def addresses(name: str) -> list[str]:
    """IP addresses that `name` resolves to; none if it doesn't."""
    try:
        return sorted({str(row[4][0]) for row in socket.getaddrinfo(name, None)})
    except OSError:
        return []


def is_loopback(found: list[str]) -> bool:
    """Whether there are addresses and all are loopback ones."""
    return bool(found) and all(ipaddress.ip_address(address.split("%")[0]).is_loopback for address in found)


def become_localhost() -> None:
    """Move this process into a UTS namespace where the host is called `localhost`. OSError where that is forbidden."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWUTS) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"a UTS namespace can't be made: {os.strerror(number)}")
    socket.sethostname(LOCAL)


def preparation() -> Callable[[], None] | None:
    """What a process must do before it becomes a Slurm daemon or srun: nothing (None) where the host's name will do.

    Raises SandboxError, with the mend, where the name won't do and this user may not change it.
    """
    name = socket.gethostname()
    found = addresses(name)
    if is_loopback(found):
        return None
    if os.geteuid() == 0:
        return become_localhost
    what = f"resolves to {', '.join(found)}" if found else "does not resolve"
    raise SandboxError(
        f"this host's name {name!r} {what}: Slurm's daemons must listen on loopback; "
        f"let an administrator add '127.0.1.1 {name}' to /etc/hosts"
    )
