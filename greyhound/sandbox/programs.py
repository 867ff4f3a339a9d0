"""Finds the programs that the sandbox needs, and names the Debian package of what is missing."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from greyhound.sandbox.errors import SandboxError

# Daemons live in sbin, which an ordinary user's PATH lacks on Debian.
SEARCH = os.pathsep.join(["/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/sbin", "/usr/local/bin"])
PACKAGES = {
    "munged": "munge",
    "mariadbd": "mariadb-server",
    "mariadb-install-db": "mariadb-server",
    "slurmdbd": "slurmdbd",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "srun": "slurm-client",
    "sinfo": "slurm-client",
    "redis-server": "redis-server",
}
PLUGIN_FOLDERS = ("*/slurm-wlm", "*/slurm", "slurm")
PLUGINS = {
    "accounting_storage_slurmdbd.so": "slurm-wlm-basic-plugins",
    "accounting_storage_mysql.so": "slurm-wlm-mysql-plugin",
}


def find(program: str) -> str | None:
    """Absolute path of a program on PATH or in the usual folders."""
    return shutil.which(program) or shutil.which(program, path=SEARCH)


def require(*, redis: bool) -> dict[str, str]:
    """Paths of everything in PACKAGES; SandboxError with one apt-get line if something is missing."""
    wanted = [name for name in PACKAGES if redis or name != "redis-server"]
    paths = {name: find(name) for name in wanted}
    missing = [name for name, path in paths.items() if path is None]
    packages = {PACKAGES[name] for name in missing}
    for plugin, package in PLUGINS.items():
        if not any(any(Path("/usr").glob(f"lib*/{folder}/{plugin}")) for folder in PLUGIN_FOLDERS):
            missing.append(plugin)
            packages.add(package)
    if missing:
        raise SandboxError(
            f"the sandbox needs {', '.join(missing)}, not found here; on Debian: "
            f"apt-get install --no-install-recommends {' '.join(sorted(packages))}"
        )
    return {name: path for name, path in paths.items() if path is not None}


def slurm_release(slurmctld: str) -> tuple[int, int]:
    """(year, month) of the installed Slurm as `slurmctld -V` prints it ("slurm-wlm 22.05.8")."""
    answer = subprocess.run([slurmctld, "-V"], capture_output=True, text=True, timeout=20, check=False)
    match = re.search(r"\b(\d\d)\.(\d\d)\b", answer.stdout)
    if match is None:
        text = (answer.stdout + answer.stderr).strip()
        raise SandboxError(f"{slurmctld} -V says {text!r}; expected 'slurm-wlm 22.05.8'")
    return int(match[1]), int(match[2])
