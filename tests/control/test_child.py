"""How a process of ours is told to end."""

import signal
import subprocess
import sys

import pytest

from greyhound.control import child

WAITS = "import signal, sys; signal.signal({stop}, {action}); print('ready', flush=True); signal.pause()"


def start(action: str) -> "subprocess.Popen[bytes]":
    text = WAITS.format(stop=int(child.STOP), action=action)
    process = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout as out:
        assert out.readline() == b"ready\n"
    return process


@pytest.mark.parametrize(
    ("action", "grace_s", "status"),
    [("lambda *_: sys.exit(3)", 60.0, 3), ("signal.SIG_IGN", 0.05, -signal.SIGKILL)],
)
def test_one_that_stops_leaves_its_status_and_one_that_does_not_is_killed(action, grace_s, status):
    process = start(action)
    assert child.end(process, grace_s) == status
    assert child.end(process, grace_s) == status, "told again, it says the same"
