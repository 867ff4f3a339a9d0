"""Which processes train on the GPUs of a stand-in page: read from /proc, nothing is changed here."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from greyhound.sandbox.page import VARIABLE

NODE_VARIABLES = ("GREYHOUND_STANDIN_NODE", "SLURMD_NODENAME")
LOCAL_RANK_VARIABLES = ("LOCAL_RANK", "SLURM_LOCALID")


@dataclass(frozen=True)
class PageUser:
    """A rank: its process, its node, and its GPU's name on the page ("" where the page has none for it)."""

    pid: int
    node: str
    gpu: str


def node_of(environment: Mapping[str, str]) -> str:
    """The node's name, as the stand-in finds it."""
    return next((environment[name] for name in NODE_VARIABLES if environment.get(name)), "localhost")


def gpu_of(environment: Mapping[str, str], gpus: Sequence[str]) -> str:
    """The name of the rank's GPU: its local rank's one of those that it sees, which are shared where they are fewer."""
    node = node_of(environment)
    there = [name for name in gpus if name.rpartition(":")[0] == node]
    shown = environment.get("CUDA_VISIBLE_DEVICES", "")
    visible = [f"{node}:{index}" for index in shown.split(",") if f"{node}:{index}" in there] if shown else there
    if not visible:
        return ""
    local = next((environment[name] for name in LOCAL_RANK_VARIABLES if environment.get(name, "").isdecimal()), "0")
    return visible[int(local) % len(visible)]


def _maps(pid: int, page: Path) -> bool:
    """Only who has the page mapped uses it: not srun, nor anybody else with its name in the environment."""
    try:
        return str(page) in Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return False


def users(page: Path, gpus: Sequence[str]) -> list[PageUser]:
    """All processes that use this page, by process id."""
    found = []
    for process in psutil.process_iter():
        try:
            environment = process.environ()
        except (psutil.Error, OSError):
            continue
        if environment.get(VARIABLE) == str(page) and process.pid != os.getpid() and _maps(process.pid, page):
            found.append(PageUser(process.pid, node_of(environment), gpu_of(environment, gpus)))
    return sorted(found, key=lambda user: user.pid)
