"""Earlier runs of the same training tell of a GPU that is slow from the start; its calls in files (make scenarios)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from greyhound.sandbox.watched import REPOSITORY
from tests.control.helpers import GREYHOUND, wait_for

pytestmark = [pytest.mark.training]
STEPS = 64
WORK = ("--micro-batches", "4", "--layer-ms", "20")


class Launch:
    """One training of two ranks on stand-in GPUs, with a record directory that all launches of the test share."""

    def __init__(self, folder: Path, *options: str) -> None:
        train = [sys.executable, "-m", "greyhound.sandbox.train", "--pp", "2", "--steps", str(STEPS)]
        train += options
        watch = ["--standin", "-n", "2", "--greyhound", f"on,record_dir={folder}"]
        self._process = subprocess.Popen(
            [GREYHOUND, "launch", *watch, "--", *train],
            cwd=REPOSITORY,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._folder = folder / f"local-{self._process.pid}"
        self._status = self._folder / "0.0" / "status.json"
        self.page = Path(f"/dev/shm/greyhound-standin-{os.getuid()}-{self._process.pid}.page")

    def slow_from_the_start(self) -> None:
        """Before the ranks have imported torch."""
        wait_for("the stand-in page", self.page.exists)
        inject = [GREYHOUND, "inject", "gpu", "localhost:0", "--speed", "0.8", "--page", str(self.page)]
        subprocess.run(inject, check=True, timeout=30)

    def record_calls(self, output: Path) -> list[dict[str, object]]:
        """`greyhound trace record` while it trains, and what `greyhound detect` makes of the files."""
        wait_for("tracking", lambda: self.state() == "tracking")
        command = [GREYHOUND, "trace", "record", self._folder.name, "--seconds", "6", "-o", output]
        command += ["--record-dir", self._folder.parent]
        done = subprocess.run(command, check=True, timeout=90, stdout=subprocess.PIPE, text=True)
        detect = [GREYHOUND, "detect", "--json", *done.stdout.split()]
        found = subprocess.run(detect, check=True, timeout=90, stdout=subprocess.PIPE, text=True)
        return [json.loads(line) for line in found.stdout.splitlines()]

    def state(self) -> object:
        """What status.json says, None before there is one."""
        return self.status()["state"] if self._status.exists() else None

    def said(self) -> list[str]:
        """Its lines about earlier runs, after its end."""
        _, err = self._process.communicate(timeout=120)
        assert self._process.returncode == 0, err
        print(err)
        return [line for line in err.splitlines() if "earlier run" in line]

    def status(self) -> dict[str, object]:
        """The last one."""
        return dict(json.loads(self._status.read_text()))


@pytest.mark.usefixtures("native")
def test_a_run_that_is_slow_from_its_start_says_so(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if not request.config.getoption("--scenarios"):
        pytest.skip("long: run `make scenarios`")
    first = Launch(tmp_path, *WORK)
    recorded = first.record_calls(tmp_path / "calls")
    assert first.said() == []
    healthy_s = float(str(first.status()["healthy_s"]))
    assert [row["episodes"] for row in recorded] == [[], []]
    assert [row["healthy_s"] for row in recorded] == [pytest.approx(healthy_s, rel=0.03)] * 2
    slow = Launch(tmp_path, *WORK)
    slow.slow_from_the_start()
    (line,) = slow.said()
    assert "x slower than 1 earlier run with the same calls" in line
    status = slow.status()
    assert status["fingerprint"] == first.status()["fingerprint"]
    assert 1.1 < status["runs"]["slowdown"] < 1.3
    assert status["episodes"] == []
    third = Launch(tmp_path, *WORK)
    assert third.said() == []
    assert third.status()["runs"]["runs"] == 2
    other = Launch(tmp_path, *WORK, "--micro-batches", "6")
    assert other.said() == []
    assert other.status()["runs"] is None
    assert other.status()["fingerprint"] not in (None, status["fingerprint"])
