"""Ways to start a training besides one task a GPU: torchrun below srun, and `greyhound launch` without Slurm."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from greyhound.sandbox.cluster import Sandbox
from tests.e2e.training import LAUNCH_TIMEOUT_S, TRAIN, free_port, read_log

pytestmark = pytest.mark.training
STEPS = 28  # nothing in these small layouts proves an iteration: the period is believed after 20 s
SHORT = ["--steps", str(STEPS), "--micro-batches", "4", "--layer-ms", "60"]


def end_event(events: str) -> dict[str, object]:
    """The data of the one `end` event among JSON lines."""
    (end,) = [event["data"] for event in map(json.loads, events.splitlines()) if event["kind"] == "end"]
    return end


def run_training(start: list[str], log: Path, environment: dict[str, str], tp: int = 1) -> None:
    """Run the short training behind `start` to its good end."""
    done = subprocess.run(
        [*start, *SHORT, "--tp", str(tp), "--json-log", str(log)],
        env={**environment, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=LAUNCH_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(read_log(log)) == STEPS


@pytest.mark.cluster
def test_srun_torchrun_with_one_task_a_node(sandbox: Sandbox, tmp_path: Path) -> None:
    torchrun = [str(Path(sys.executable).parent / "torchrun"), "--nnodes=2", "--nproc-per-node=2"]
    rendezvous = ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{free_port()}", "--rdzv-id=7"]
    command = ["srun", "-N2", "--ntasks-per-node=1", "--greyhound=observe", *torchrun, *rendezvous]
    run_training([*command, *TRAIN[1:]], tmp_path / "log", sandbox.env(), tp=2)
    jobs = sorted(int(path.name) for path in sandbox.layout.records.iterdir() if path.name.isdigit())
    events = (sandbox.layout.records / str(jobs[-1]) / "0.0" / "events.jsonl").read_text()
    end = end_event(events)
    assert (end["ranks"], end["tracked"], end["episodes"]) == (4, 4, [])
    assert STEPS - 4 <= int(str(end["iterations"])) <= STEPS


@pytest.mark.scenario
def test_greyhound_launch_without_slurm(tmp_path: Path) -> None:
    environment = {**os.environ, "HOME": str(tmp_path), "GREYHOUND_RECORD_DIR": ""}
    launch = [sys.executable, "-m", "greyhound", "launch", "-n", "2", "--standin"]
    options = ["--greyhound", f"observe,record_dir={tmp_path / 'records'}"]
    run_training([*launch, *options, "--", *TRAIN], tmp_path / "log", environment)
    (events,) = (tmp_path / "records").glob("local-*/0.0/events.jsonl")
    end = end_event(events.read_text())
    assert (end["ranks"], end["tracked"], end["episodes"]) == (2, 2, [])
