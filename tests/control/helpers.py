"""Starting node processes and launches in tests, and finding their children."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil

from greyhound.control.status import read_status

PROGRAM = Path(__file__).with_name("ring_program.py")
GREYHOUND = Path(sys.executable).with_name("greyhound")
PATIENCE_S = 40


def wait_for(what, condition):
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"waited {PATIENCE_S} s for {what}")


def environment(home, **extra):
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    return {**kept, "HOME": str(home), **extra}


def launch(home, *arguments, **extra):
    return subprocess.Popen(
        [GREYHOUND, "launch", *map(str, arguments)],
        env=environment(home, **extra),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ring_program(*arguments):
    return [sys.executable, PROGRAM, *map(str, arguments)]


def child_with(process, program):
    """The descendant of `process` that runs the Python module or the executable `program`."""

    def find():
        for one in psutil.Process(process.pid).children(recursive=True):
            try:
                command = one.cmdline()
                if program in (*command[1:4], Path(command[0]).name):
                    return one
            except (psutil.Error, IndexError):
                continue
        return None

    return wait_for(f"a child that runs {program}", find)


def step_dirs(pid):
    return list(Path("/dev/shm").glob(f"greyhound-*local-{pid}.*"))


def wait_for_status(pid, state):
    def find():
        for folder in step_dirs(pid):
            status = read_status(folder / "status.json")
            if status and status["state"] == state:
                return status
        return None

    return wait_for(f"state {state}", find)
