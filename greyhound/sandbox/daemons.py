"""Starts the daemons of one sandbox, one after the other, and waits until each answers."""

import os
import pwd
import socket
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from greyhound.sandbox import hostname, processes, programs
from greyhound.sandbox.errors import DaemonError
from greyhound.sandbox.layout import Layout
from greyhound.sandbox.state import Recorded, State

READY_TIMEOUT_S = 60.0
TAIL_LINES = 15


class Starter:
    """Starts daemons in the foreground of sessions of their own and writes each into the state at once."""

    def __init__(self, layout: Layout, state: State, paths: dict[str, str], say: Callable[[str], None]) -> None:
        self._layout = layout
        self._state = state
        self._paths = paths
        self._say = say
        self._before = hostname.preparation()
        if self._before is not None:
            say(f"this host's name {socket.gethostname()!r} is no loopback name: the daemons see {hostname.LOCAL!r}")

    def start_all(self) -> None:
        """munged, mariadbd, slurmdbd, slurmctld and every slurmd; DaemonError names the first that fails."""
        layout, ports = self._layout, self._state.ports
        installer = self._install_database()
        munged = self._start("munged", self._munged())
        self._wait("munged", munged, lambda: _answers(layout.munge_socket))
        self._finish_database(installer)
        mariadbd = self._start("mariadbd", self._mariadbd())
        self._wait("mariadbd", mariadbd, lambda: _answers(layout.database_socket))
        slurmdbd = self._start("slurmdbd", [self._paths["slurmdbd"], "-D"])
        self._wait("slurmdbd", slurmdbd, lambda: _listens(ports["slurmdbd"]))
        slurmctld = self._start("slurmctld", [self._paths["slurmctld"], "-D", "-f", str(layout.conf)])
        self._wait("slurmctld", slurmctld, lambda: _listens(ports["slurmctld"]))
        nodes = {
            f"slurmd.{node}": self._start(
                f"slurmd.{node}", [self._paths["slurmd"], "-D", "-N", node, "-f", str(layout.conf)]
            )
            for node in self._state.nodes
        }
        for name, daemon in nodes.items():
            self._wait(name, daemon, partial(self._is_idle, name.removeprefix("slurmd.")))

    def _munged(self) -> list[str]:
        layout = self._layout
        return [
            self._paths["munged"],
            "--foreground",
            f"--socket={layout.munge_socket}",
            f"--key-file={layout.munge_key}",
            f"--pid-file={layout.directory}/munge/pid",
            f"--seed-file={layout.directory}/key/seed",
            f"--log-file={layout.log('munged')}",
            "--num-threads=2",
        ]

    def _mariadbd(self) -> list[str]:
        database = self._layout.database
        return [
            self._paths["mariadbd"],
            "--no-defaults",
            f"--datadir={database}/data",
            f"--socket={self._layout.database_socket}",
            f"--pid-file={database}/pid",
            f"--user={_database_user()}",
            "--skip-networking",
            "--skip-name-resolve",
            "--skip-log-bin",
            "--innodb-buffer-pool-size=64M",
            "--innodb-log-file-size=16M",
            "--innodb-flush-log-at-trx-commit=0",  # a sandbox's accounting may be lost with the machine
            "--innodb-lock-wait-timeout=900",
            f"--init-file={self._layout.directory}/etc/database.sql",
        ]

    def _install_database(self) -> subprocess.Popen[bytes]:
        if os.getuid() == 0:
            account = pwd.getpwnam(_database_user())
            os.chown(self._layout.database, account.pw_uid, account.pw_gid)
        command = [
            self._paths["mariadb-install-db"],
            "--no-defaults",
            f"--datadir={self._layout.database}/data",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            "--innodb-buffer-pool-size=64M",
            "--innodb-log-file-size=16M",
        ]
        if os.getuid() == 0:
            command.append(f"--user={_database_user()}")
        return self._spawn("mariadb-install-db", command)

    def _finish_database(self, installer: subprocess.Popen[bytes]) -> None:
        try:
            status = installer.wait(timeout=READY_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise self._failure("mariadb-install-db", f"did not end within {READY_TIMEOUT_S:.0f} s") from None
        if status != 0:
            raise self._failure("mariadb-install-db", f"ended with status {status}")
        self._say("database made")

    def _spawn(self, name: str, command: list[str]) -> subprocess.Popen[bytes]:
        """Run in a session of its own, so that Ctrl-C at `up` or in its terminal does not reach the daemon."""
        with (self._layout.logs / f"{name}.out").open("wb") as output:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._layout.directory,
                env=self._environment(),
                start_new_session=True,
                umask=0o022,
                preexec_fn=self._before,
            )

    def _start(self, name: str, command: list[str]) -> subprocess.Popen[bytes]:
        process = self._spawn(name, command)
        ticks = processes.start_ticks(process.pid)
        if ticks is not None:
            self._state.processes.append(Recorded(name, process.pid, ticks))
            self._state.save(self._layout)
        return process

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": programs.SEARCH,
            "LANG": "C.UTF-8",
            "HOME": str(self._layout.directory),
            "SLURM_CONF": str(self._layout.conf),
            "MYSQL_UNIX_PORT": str(self._layout.database_socket),
            processes.MARK: str(self._layout.directory),
        }

    def _wait(self, name: str, process: subprocess.Popen[bytes], ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not ready():
            if process.poll() is not None:
                raise self._failure(name, f"ended with status {process.returncode}")
            if time.monotonic() > deadline:
                raise self._failure(name, f"is not ready after {READY_TIMEOUT_S:.0f} s")
            time.sleep(0.05)
        self._say(f"{name} up (pid {process.pid})")

    def _is_idle(self, node: str) -> bool:
        command = [self._paths["sinfo"], "-h", "-N", "-n", node, "-o", "%T"]
        try:
            answer = subprocess.run(
                command, capture_output=True, text=True, timeout=20, check=False, env=self._environment()
            )
        except subprocess.TimeoutExpired:
            return False
        return answer.stdout.split() == ["idle"]

    def _failure(self, name: str, what: str) -> DaemonError:
        return DaemonError(f"{name} {what}; the end of its log:\n{tail(self._layout, name)}")


def _database_user() -> str:
    """mariadbd refuses to run as root unless told to; Debian's package brings the user mysql."""
    if os.getuid() != 0:
        return pwd.getpwuid(os.getuid()).pw_name
    try:
        return pwd.getpwnam("mysql").pw_name
    except KeyError:
        return "root"


def tail(layout: Layout, name: str) -> str:
    """Last lines of a daemon's log, or of what it printed where it wrote no log."""
    for path in (layout.log(name), layout.logs / f"{name}.out"):
        lines = _lines(path)
        if lines:
            return "\n".join(lines[-TAIL_LINES:])
    return "(empty)"


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        return probe.connect_ex(str(path)) == 0


def _listens(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
