"""Writes the directory and the configuration files of a sandbox."""

import os
import pwd
import sys
from dataclasses import dataclass
from pathlib import Path

import greyhound
from greyhound.sandbox import programs, templates
from greyhound.sandbox.errors import SandboxError
from greyhound.sandbox.layout import JOB_RANGE, Layout

CPUS_PER_NODE = 16
NATIVE = Path(greyhound.__file__).resolve().parent / "_native"
# Before this release slurmd exits with `disabled`; cgroup/v1 then stays unused, since nothing else asks for cgroups.
CGROUP_DISABLED_SINCE = (23, 11)


@dataclass(frozen=True)
class Settings:
    """What varies between sandboxes, besides paths."""

    release: tuple[int, int]
    nodes: list[str]
    gpus_per_node: int
    first_job_id: int
    ports: dict[str, int]
    """slurmctld, slurmdbd and each node by its name."""


def user_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        raise SandboxError(f"user id {os.getuid()} has no name here; Slurm needs one (see getent passwd)") from None


def make_directory(layout: Layout) -> None:
    """Create the tree: others may run jobs in it, but read neither database nor munge key."""
    modes = {"": 0o755, "etc": 0o755, "munge": 0o755, "key": 0o700, "db": 0o700, "log": 0o755, "run": 0o755}
    modes |= {"state": 0o700, "spool": 0o755, "dev": 0o755, "records": 0o1777}
    for name, mode in modes.items():
        path = layout.directory / name
        path.mkdir(mode=0o700)  # fails if somebody else put one there
        path.chmod(mode)


def write(layout: Layout, settings: Settings) -> None:
    """Write key, slurm.conf, slurmdbd.conf, cgroup.conf, gres.conf and make the devices."""
    _private(layout.munge_key, os.urandom(128), 0o400)
    etc = layout.directory / "etc"
    common = {"directory": layout.directory, "user": user_name(), "munge_socket": layout.munge_socket}
    common["dbd_port"] = settings.ports["slurmdbd"]
    _private(etc / "slurmdbd.conf", templates.SLURMDBD_CONF.substitute(common).encode(), 0o600)
    (etc / "database.sql").write_text(templates.DATABASE_SQL)
    plugin = "disabled" if settings.release >= CGROUP_DISABLED_SINCE else "cgroup/v1"
    (etc / "cgroup.conf").write_text(templates.CGROUP_CONF.substitute(cgroup_plugin=plugin))
    _write_gres(layout, settings)
    layout.conf.write_text(
        templates.SLURM_CONF.substitute(
            common,
            cluster="greyhound_" + layout.name.replace("-", "_"),
            ctld_port=settings.ports["slurmctld"],
            first_job_id=settings.first_job_id,
            last_job_id=settings.first_job_id + JOB_RANGE - 1,
            gres_types="GresTypes=gpu\nAccountingStorageTRES=gres/gpu" if settings.gpus_per_node else "",
            node_lines="\n".join(_node_line(name, settings) for name in settings.nodes),
        )
    )
    for node in settings.nodes:
        (layout.directory / "spool" / node).mkdir(mode=0o755)


def _node_line(name: str, settings: Settings) -> str:
    gres = f" Gres=gpu:{settings.gpus_per_node}" if settings.gpus_per_node else ""
    return templates.NODE_LINE.substitute(name=name, port=settings.ports[name], cpus=CPUS_PER_NODE, gres=gres)


def _write_gres(layout: Layout, settings: Settings) -> None:
    if not settings.gpus_per_node:
        (layout.directory / "etc" / "gres.conf").write_text("AutoDetect=off\n")
        return
    for index in range(settings.gpus_per_node):
        # Slurm wants a character device (else CUDA_VISIBLE_DEVICES stays unset); a link needs no root to make.
        layout.device(index).symlink_to("/dev/null")
    last = settings.gpus_per_node - 1
    devices = f"{layout.device(0)}" if last == 0 else f"{layout.directory}/dev/gpu[0-{last}]"
    text = templates.GRES_CONF.substitute(nodes=",".join(settings.nodes), devices=devices)
    (layout.directory / "etc" / "gres.conf").write_text(text)


def _private(path: Path, content: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def write_plugstack(layout: Layout, *, wanted: bool) -> bool:
    """Write plugstack.conf (read by every srun and step anew); True if the plugin is in it."""
    present = wanted and (NATIVE / "spank_greyhound.so").exists()
    text = "# no plugin\n"
    if present:
        text = templates.PLUGSTACK_CONF.substitute(
            native=NATIVE,
            python=sys.executable,
            records=layout.records,
            redis_server=programs.find("redis-server") or "/usr/bin/redis-server",
            mute_file=layout.mute_file,
        )
    draft = layout.plugstack.with_suffix(".new")
    draft.write_text(text)
    draft.replace(layout.plugstack)
    return present
