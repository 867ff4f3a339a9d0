"""A small training that `greyhound launch` starts on stand-in GPUs, watched or not."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from greyhound.sandbox.watched import REPOSITORY, START_TIMEOUT_S
from tests.control.helpers import GREYHOUND, wait_for


class Launch:
    """One training of two ranks on stand-in GPUs, with a record directory that all launches of the test share."""

    def __init__(self, folder: Path, *options: str, steps: int = 64, mode: str = "on") -> None:
        train = [sys.executable, "-m", "greyhound.sandbox.train", "--pp", "2", "--steps", str(steps)]
        train += options
        watch = ["--standin", "-n", "2", "--greyhound", f"{mode},record_dir={folder}"]
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

    @property
    def name(self) -> str:
        """How Greyhound knows it."""
        return self._folder.name

    def wait_until_tracked(self) -> None:
        """Until the period of its ranks is known."""
        until_s = time.monotonic() + START_TIMEOUT_S
        while self.state() != "tracking":
            assert time.monotonic() < until_s, "the ranks must be tracked"
            time.sleep(0.2)

    def record_calls(self, output: Path) -> list[dict[str, object]]:
        """`greyhound trace record` while it trains, and what `greyhound detect` makes of the files."""
        self.wait_until_tracked()
        command = [GREYHOUND, "trace", "record", self.name, "--seconds", "6", "-o", output]
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
