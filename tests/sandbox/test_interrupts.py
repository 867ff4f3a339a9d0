"""Told to stop at a bad moment, twice: nothing may be left."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from greyhound.sandbox.layout import Layout

pytestmark = pytest.mark.cluster


def start(*arguments: str, until: str) -> subprocess.Popen[str]:
    """Start a command and wait for a line that contains `until`."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if re.search(until, line):
            return process
    raise AssertionError(f"{arguments} ended with {process.wait()} before {until!r}")


def left_of(name: str) -> list[str]:
    """Processes that mention the sandbox's folder, the folder itself and its page."""
    layout = Layout(name)
    left = [str(path) for path in (layout.directory, layout.page) if path.exists()]
    for process in Path("/proc").glob("[0-9]*/environ"):
        try:
            if str(layout.directory).encode() in process.read_bytes():
                left.append(str(process))
        except OSError:
            continue
    return left


@pytest.mark.parametrize("numbers", [[signal.SIGTERM], [signal.SIGINT, signal.SIGINT], [signal.SIGHUP, signal.SIGTERM]])
def test_an_interrupted_demo_takes_its_cluster_down(numbers: list[signal.Signals]) -> None:
    name = f"stop-{os.getpid()}"
    demo = start("greyhound.sandbox.demo", "--name", name, until="job \\d+")
    for number in numbers:
        time.sleep(0.4)
        demo.send_signal(number)
    said, _ = demo.communicate(timeout=60)
    assert demo.returncode == 1
    assert "interrupted" in said
    assert left_of(name) == []


def test_an_interrupted_up_takes_back_what_it_began() -> None:
    name = f"stop-{os.getpid()}"
    up = start("greyhound", "sandbox", "up", "--name", name, until="mariadbd up")
    up.send_signal(signal.SIGTERM)
    up.communicate(timeout=60)
    assert up.returncode != 0
    assert left_of(name) == []
