"""Environments that would break any program that trusts them: our processes run, and the job is unharmed."""

import os
import subprocess
import threading
from pathlib import Path

import pytest

from greyhound.sandbox.cluster import Sandbox
from tests.spank.cheap import DONE, build_rank, end_event, read_json
from tests.spank.rig import until

pytestmark = pytest.mark.cluster

LIBRARIES = ("libz.so.1", "libm.so.6", "libpython3.11.so.1.0", "libssl.so.3", "libexpat.so.1", "libopenblas.so.0")


@pytest.fixture(scope="module")
def rank(folder: Path) -> Path:
    return build_rank(folder / "hostile")


@pytest.fixture(scope="module")
def evil(folder: Path) -> Path:
    """Python modules, libraries and programs that end whoever takes them."""
    root = folder / "evil"
    (root / "greyhound").mkdir(parents=True)
    for name in ("sitecustomize.py", "usercustomize.py", "json.py", "redis.py", "greyhound/__init__.py"):
        (root / name).write_text("import os\nos._exit(1)\n")
    for name in LIBRARIES:
        (root / name).write_text("no library")
    (root / "closed").mkdir(mode=0o000)
    for name in ("python", "python3", "redis-server", "scontrol", "hostname"):
        (root / name).write_text("#!/bin/sh\nexit 1\n")
        (root / name).chmod(0o755)
    return root


HOSTILE = {
    "PYTHONPATH with broken modules": {"PYTHONPATH": "{evil}"},
    "PYTHONHOME that is none": {"PYTHONHOME": "/nonexistent", "PYTHONSTARTUP": "/nonexistent"},
    "broken libraries first": {"LD_LIBRARY_PATH": "{evil}"},
    "other programs first, as conda has them": {"PATH": "{evil}:/usr/bin:/bin", "CONDA_PREFIX": "{evil}"},
    "no place for files": {"TMPDIR": "/nonexistent", "HOME": "/nonexistent", "XDG_STATE_HOME": "/nonexistent"},
    "a closed home": {"HOME": "{evil}/closed", "TMPDIR": "{evil}/closed"},
    "a strange language": {"LANG": "xx_YY.bogus", "LC_ALL": "tr_TR.UTF-8", "PYTHONIOENCODING": "rot13"},
    "a preload that is missing": {"LD_PRELOAD": "/nonexistent/libnone.so"},
}
HOSTILE["all of it"] = {name: value for case in HOSTILE.values() for name, value in case.items()}


class Ender(threading.Thread):
    """Tells the rank to end once its record says that it is watched."""

    def __init__(self, records: Path, stop: Path) -> None:
        super().__init__()
        self._records, self._file = records, stop
        self.start()

    def _is_watched(self) -> bool:
        return any(read_json(path).get("ranks") == 1 for path in self._records.glob("*/*/status.json"))

    def run(self) -> None:
        try:
            until(self._is_watched, "the rank is watched", limit_s=40)
        finally:
            self._file.touch()


def run(sandbox: Sandbox, rank: Path, stop: Path, options: list[str], environment: dict[str, str]) -> tuple[int, str]:
    """The step's exit code and what it said; `environment` is the tasks', as a job script exports it."""
    assignments = [f"{name}={value}" for name, value in environment.items()]
    command = ["srun", "-Q", "-n1", *options, f"--export=ALL,{','.join(assignments)}", str(rank), str(stop)]
    done = subprocess.run(command, env=sandbox.env(), capture_output=True, text=True, timeout=90, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize("case", HOSTILE)
def test_the_rank_is_watched_all_the_same(sandbox: Sandbox, rank: Path, evil: Path, tmp_path: Path, case: str):
    environment = {name: value.format(evil=evil) for name, value in HOSTILE[case].items()}
    records = tmp_path / "records"
    ender = Ender(records, tmp_path / "stop")
    code, said = run(sandbox, rank, tmp_path / "stop", [f"--greyhound=observe,record_dir={records}"], environment)
    ender.join()
    assert (code, [line for line in said.splitlines() if "greyhound" in line]) == (DONE, [])
    (events,) = records.glob("*/*/events.jsonl")
    end = end_event(events)
    assert end["ranks"] == 1


def test_without_a_home_or_a_name_in_the_environment(sandbox: Sandbox, rank: Path, tmp_path: Path):
    records = tmp_path / "records"
    ender = Ender(records, tmp_path / "stop")
    bare = ["env", "-i", f"SLURM_CONF={sandbox.layout.conf}", "PATH=/usr/bin:/bin"]
    option = f"--greyhound=observe,record_dir={records}"
    command = [*bare, "srun", "-Q", "-n1", option, "--export=NONE", str(rank), str(tmp_path / "stop")]
    done = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, timeout=90, check=False)
    ender.join()
    assert (done.returncode, "greyhound" in done.stderr) == (DONE, False)
    (events,) = records.glob("*/*/events.jsonl")
    assert end_event(events)["ranks"] == 1
