"""Checks that nothing of the sandbox can be reached from outside this machine."""

from collections.abc import Iterable

import psutil

LOOPBACK = ("127.", "::1", "::ffff:127.")


def foreign(pids: Iterable[int]) -> list[str]:
    """Listening TCP sockets of these processes that are not on loopback, as "ADDRESS:PORT (pid N)"."""
    wanted = set(pids)
    return [
        f"{link.laddr.ip}:{link.laddr.port} (pid {link.pid})"
        for link in psutil.net_connections("tcp")
        if link.pid in wanted and link.status == psutil.CONN_LISTEN and not link.laddr.ip.startswith(LOOPBACK)
    ]
