"""Many threads and communicators, the mode flipped and the process forked meanwhile: nothing lost, doubled or hung."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

from tests.hook.conftest import NATIVE, Runner, compile_c
from tests.hook.ring_view import GH

RING = "262144"  # more than the calls made, so that all records are still there at the end


def check(out: str, calls: int) -> None:
    """All calls are recorded or counted as muted, each once; some of each."""
    found = re.fullmatch(r"calls (\d+) records (\d+) muted (\d+) strange (\d+) flags (\d+) forks (\d+)\n", out)
    assert found, out
    made, records, muted, strange, flags, _ = map(int, found.groups())
    assert (made, records + muted, strange, flags) == (calls, calls, 0, GH["FLAG_COMMS_FULL"]), out
    assert records and muted, out


def build(root: Path, runner: Runner, *flags: str) -> Path:
    """The program, linked to the hook in `root` ahead of NCCL."""
    hook, nccl = root / "libgreyhound_hook.so", runner.built.nccl
    libraries = ["-Wl,--no-as-needed", hook, nccl, f"-Wl,-rpath,{root}:{nccl.parent}"]
    return compile_c(root / "storm", *flags, NATIVE / "storm.c", hook.with_name("libgreyhound_reader.so"), *libraries)


def test_storm(runner: Runner) -> None:
    program = build(runner.built.hook.parent, runner)
    out = runner.clean(program, "2000", LD_PRELOAD=None, GREYHOUND_RING_RECORDS=RING)
    check(out, 16 * 2000 * 4)


def test_storm_with_forks_and_flips_from_outside(runner: Runner) -> None:
    program = build(runner.built.hook.parent, runner)
    environment = runner.variables(LD_PRELOAD="", GREYHOUND_RING_RECORDS=RING)
    command = [str(program), "2000", "fork"]
    with subprocess.Popen(command, env=environment, text=True, stdout=-1, stderr=-1) as process:
        while process.poll() is None and not any(path.stat().st_size for path in runner.step.iterdir()):
            time.sleep(0.001)
        ring, mode = runner.ring(), 0
        while process.poll() is None:
            ring.set_mode(mode % 2)
            mode += 1
        out, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, ""), (process.returncode, out, errors)
    check(out, 16 * 2000 * 4)
    assert not out.endswith("forks 0\n")
