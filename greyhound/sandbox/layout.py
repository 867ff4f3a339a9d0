"""Where everything of one sandbox lies; pure path arithmetic, nothing is created here."""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from greyhound.sandbox.errors import SandboxError

BASE = Path("/tmp")
SHM = Path("/dev/shm")
PREFIX = "greyhound-sandbox"
DEFAULT_NAME = "default"
JOB_RANGE = 10_000
"""Job ids given to one sandbox: step directories in /dev/shm of two sandboxes never share a name."""

# Short enough for a Unix socket path (108 bytes) below BASE; safe in Slurm and SQL identifiers.
_NAME = re.compile(r"[a-z][a-z0-9-]{0,19}")


@dataclass(frozen=True)
class Layout:
    """Paths of the sandbox NAME of user UID."""

    name: str
    uid: int = field(default_factory=os.getuid)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise SandboxError(
                f"sandbox name {self.name!r}: give 1 to 20 lower-case letters, digits or '-', beginning with a letter"
            )

    @property
    def directory(self) -> Path:
        return BASE / f"{PREFIX}-{self.uid}-{self.name}"

    @property
    def page(self) -> Path:
        return SHM / f"greyhound-standin-{self.uid}-{self.name}.page"

    @property
    def state(self) -> Path:
        return self.directory / "state.json"

    @property
    def conf(self) -> Path:
        return self.directory / "etc" / "slurm.conf"

    @property
    def plugstack(self) -> Path:
        return self.directory / "etc" / "plugstack.conf"

    @property
    def mute_file(self) -> Path:
        """The sandbox's own kill switch."""
        return self.directory / "etc" / "mute"

    @property
    def munge_socket(self) -> Path:
        return self.directory / "munge" / "sock"

    @property
    def munge_key(self) -> Path:
        return self.directory / "key" / "munge.key"

    @property
    def database(self) -> Path:
        return self.directory / "db"

    @property
    def database_socket(self) -> Path:
        return self.database / "sock"

    @property
    def records(self) -> Path:
        return self.directory / "records"

    @property
    def logs(self) -> Path:
        return self.directory / "log"

    def log(self, daemon: str) -> Path:
        return self.logs / f"{daemon}.log"

    def device(self, index: int) -> Path:
        return self.directory / "dev" / f"gpu{index}"


def existing(uid: int | None = None) -> list[Layout]:
    """Layouts of all sandbox directories of a user (default: this one), whole or broken, by name."""
    uid = os.getuid() if uid is None else uid
    start = f"{PREFIX}-{uid}-"
    names = [path.name.removeprefix(start) for path in BASE.glob(f"{start}*") if path.is_dir()]
    return [Layout(name, uid) for name in sorted(names) if _NAME.fullmatch(name)]
