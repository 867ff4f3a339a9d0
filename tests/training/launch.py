"""Start a few ranks of a Python program on this machine and collect what they say."""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

TIMEOUT_S = 150


@dataclass(frozen=True)
class Finished:
    """One rank's end."""

    status: int
    output: str
    errors: str


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def rank_environment(rank: int, ranks: int, port: int, extra: Mapping[str, str]) -> dict[str, str]:
    """As torchrun would give it, without anything of Slurm or Greyhound from outside."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "GREYHOUND", "CUDA_"))}
    own = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return {**clean, "OMP_NUM_THREADS": "1", **{k: str(v) for k, v in own.items()}, **extra}


def start(arguments: Sequence[str], ranks: int, extra: Mapping[str, str] | None = None) -> list[subprocess.Popen]:
    port = free_port()
    return [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", *arguments],
            env=rank_environment(rank, ranks, port, extra or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]


def finish(processes: list[subprocess.Popen], timeout_s: float = TIMEOUT_S) -> list[Finished]:
    try:
        texts = [process.communicate(timeout=timeout_s) for process in processes]
        return [Finished(process.returncode, *text) for process, text in zip(processes, texts, strict=True)]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def run(arguments: Sequence[str], ranks: int, extra: Mapping[str, str] | None = None) -> list[Finished]:
    """Run to the end and insist that every rank left with status 0."""
    finished = finish(start(arguments, ranks, extra))
    for rank, end in enumerate(finished):
        assert end.status == 0, f"rank {rank} left with {end.status}:\n{end.output}\n{end.errors}"
    return finished
