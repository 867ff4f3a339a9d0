"""Runs the sandbox training under Slurm or by hand and reads what it logged."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from greyhound.sandbox.cluster import Sandbox
from greyhound.sandbox.truth import TrainedIteration, parse_training_log

TRAIN = [sys.executable, "-m", "greyhound.sandbox.train"]
LAUNCH_TIMEOUT_S = 240.0


def read_log(path: Path) -> list[TrainedIteration]:
    return parse_training_log(path.read_text().splitlines(), time.time() - time.monotonic())


def srun_training(
    sandbox: Sandbox, log: Path, *, slurm: list[str], train: list[str], environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """`srun SLURM... python -m greyhound.sandbox.train TRAIN...` in the sandbox."""
    env = {
        **sandbox.env(),
        "OMP_NUM_THREADS": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        **(environment or {}),
    }
    command = ["srun", "--kill-on-bad-exit=1", *slurm, *TRAIN, *train, "--json-log", str(log)]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=LAUNCH_TIMEOUT_S, check=False)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def spawn_ranks(count: int, log: Path, train: list[str], environment: dict[str, str]) -> list[int]:
    """Start `count` ranks by hand and wait for them; their exit codes."""
    base = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        **environment,
    }
    command = [*TRAIN, *train, "--json-log", str(log)]
    ranks = [subprocess.Popen(command, env={**base, "RANK": str(r), "LOCAL_RANK": str(r)}) for r in range(count)]
    try:
        return [rank.wait(LAUNCH_TIMEOUT_S) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
