"""Who am I among the ranks: from torchrun's variables, Slurm's, or alone."""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass

_PORT_BASE, _PORT_SPAN = 10000, 9000  # below the ephemeral ports and below the master's own range


@dataclass(frozen=True)
class RankEnvironment:
    """This process's place in the job and where the ranks meet."""

    rank: int
    local_rank: int
    world_size: int
    master_address: str
    master_port: int


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment.get(name, "")
    if not text.isdecimal():
        raise ValueError(f"{name}={text!r} in the environment isn't a number; start the ranks with srun or torchrun")
    return int(text)


def _first_host(node_list: str) -> str:
    """The first name of a Slurm node list: "n[3-5,7],m1" gives "n3"."""
    prefix, bracket, rest = node_list.partition("[")
    if not bracket or "," in prefix:
        return node_list.partition(",")[0]
    first = rest.partition("]")[0].partition(",")[0].partition("-")[0]
    return prefix + first


def _resolves(host: str) -> bool:
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        return False
    return bool(host)


def _slurm_master_address(environment: Mapping[str, str]) -> str:
    """The step's first node; the sandbox's nodes are names of this machine that no resolver knows."""
    if environment.get("GREYHOUND_SANDBOX"):
        return "127.0.0.1"
    host = _first_host(environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST", ""))
    if _resolves(host):
        return host
    return environment.get("SLURM_LAUNCH_NODE_IPADDR") or "127.0.0.1"


def _slurm_master_port(environment: Mapping[str, str]) -> int:
    """A port of this job, step and run, so that neighbours on one machine and a requeued run don't meet."""
    job, step = _number(environment, "SLURM_JOB_ID"), environment.get("SLURM_STEP_ID", "0")
    restart = int(environment.get("SLURM_RESTART_COUNT", "0"))
    return _PORT_BASE + (job * 101 + int(step) * 7 + restart) % _PORT_SPAN


def from_environment(environment: Mapping[str, str] = os.environ) -> RankEnvironment:
    """Read the rank: RANK (torchrun, greyhound launch) before SLURM_PROCID (srun with one task a GPU) before alone.

    Raises:
        ValueError: a variable is missing or no number; the message names it.
    """
    if "RANK" in environment:
        rank, size = _number(environment, "RANK"), _number(environment, "WORLD_SIZE")
        local = int(environment.get("LOCAL_RANK", "0"))
        port = _number(environment, "MASTER_PORT")
        return RankEnvironment(rank, local, size, environment.get("MASTER_ADDR", "127.0.0.1"), port)
    if "SLURM_PROCID" in environment:
        rank = _number(environment, "SLURM_PROCID")
        size_name = "SLURM_STEP_NUM_TASKS" if "SLURM_STEP_NUM_TASKS" in environment else "SLURM_NTASKS"
        size, local = _number(environment, size_name), _number(environment, "SLURM_LOCALID")
        port_given = "MASTER_PORT" in environment
        port = _number(environment, "MASTER_PORT") if port_given else _slurm_master_port(environment)
        address = environment.get("MASTER_ADDR") or _slurm_master_address(environment)
        return RankEnvironment(rank, local, size, address, port)
    return RankEnvironment(0, 0, 1, "127.0.0.1", 0)
