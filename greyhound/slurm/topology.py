"""Which leaf switch a node hangs on: topology.conf, or `scontrol show topology` where the site writes topology.yaml.

Both are lines of KEY=VALUE (topology.conf(5)): `SwitchName=leaf1 Nodes=n[01-16]`; upper switches name those below them,
and scontrol names all nodes below them too, with their Level. Blocks (`BlockName=b1 Nodes=...`) count as leaves.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from greyhound.slurm.client import SlurmError
from greyhound.slurm.nodelist import NodeListError, expand

FOLDERS = ("/etc/slurm", "/run/slurm/conf", "/etc/slurm-llnl", "/usr/local/etc/slurm")
MOST_BYTES = 16 << 20
_NAMES = ("switchname", "blockname")


class Asks(Protocol):
    """What is needed of `slurm.client.CommandClient`."""

    def ask(self, program: str, *arguments: str) -> str: ...


def leaves(text: str) -> dict[str, str]:
    """Leaf switch by node, from either text; lines that can't be read are passed over."""
    found: dict[str, tuple[int, str]] = {}
    for fields in map(_fields, text.replace("\\\n", " ").splitlines()):
        name = next((fields[key] for key in _NAMES if key in fields), "")
        if not name or not fields.get("nodes"):
            continue
        level = _level(fields)
        try:
            nodes = expand(fields["nodes"])
        except NodeListError:
            continue
        for node in nodes:
            if node not in found or level < found[node][0]:
                found[node] = level, name
    return {node: name for node, (_, name) in found.items()}


def _fields(line: str) -> dict[str, str]:
    """Keys in lower case; a comment ends the line."""
    pairs = (word.partition("=") for word in line.partition("#")[0].split())
    return {key.lower(): value for key, equals, value in pairs if equals}


def _level(fields: Mapping[str, str]) -> int:
    text = fields.get("level", "")
    if text.isascii() and text.isdigit():
        return int(text)
    return 1 if fields.get("switches") else 0


def read_leaves(client: Asks, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Leaf switch by node; empty where the cluster has no topology. slurmctld is asked only where no file will do."""
    folder = _folder(os.environ if environment is None else environment)
    if folder is None:
        return {}
    found = leaves(_text(folder / "topology.conf"))
    if found or not (folder / "topology.yaml").exists():
        return found
    try:
        return leaves(client.ask("scontrol", "show", "topology"))
    except SlurmError:
        return {}


def _folder(environment: Mapping[str, str]) -> Path | None:
    """Where slurm.conf is."""
    configured = environment.get("SLURM_CONF", "")
    if configured:
        return Path(configured).parent
    return next((Path(folder) for folder in FOLDERS if (Path(folder) / "slurm.conf").exists()), None)


def _text(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(MOST_BYTES)
    except OSError:
        return ""
