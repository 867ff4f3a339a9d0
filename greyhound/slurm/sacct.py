"""Asks sacct for runs, a row at a time: a long answer is never held whole."""

import contextlib
import os
import selectors
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO

from greyhound.slurm.accounting import TIME_FORMAT, JobRun, arguments, new_delimiter, runs
from greyhound.slurm.client import SlurmError, find_program

SILENCE_S = 60.0
"""sacct may think for long over many jobs, but not for ever."""


@dataclass(frozen=True)
class Filter:
    """Which runs; empty fields ask for everything that the caller may see. Times are as sacct takes them."""

    jobs: str = ""
    user: str = ""
    account: str = ""
    partition: str = ""
    nodes: str = ""
    since: str = ""
    until: str = ""
    all_users: bool = False

    def arguments(self) -> list[str]:
        """For sacct, which shows an ordinary user their own runs, and without jobs or since begins at midnight."""
        pairs = {
            "--jobs": self.jobs,
            "--user": self.user,
            "--accounts": self.account,
            "--partition": self.partition,
            "--nodelist": self.nodes,
            "--starttime": self.since,
            "--endtime": self.until,
        }
        chosen = [f"{name}={text}" for name, text in pairs.items() if text]
        return ["--allusers", *chosen] if self.all_users else chosen


def _lines(process: "subprocess.Popen[bytes]", silence_s: float, fell_silent: list[str]) -> Iterator[str]:
    """Lines of its output; where nothing comes for ``silence_s`` they end, and ``fell_silent`` says so."""
    assert process.stdout is not None
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            if not selector.select(silence_s):
                # The row before is whole: whoever reads must still get it.
                fell_silent.append(f"sacct has said nothing for {silence_s:g} s: is slurmdbd up? try a shorter --since")
                break
            chunk = os.read(process.stdout.fileno(), 1 << 16)
            if not chunk:
                break
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                yield line.decode(errors="replace")
    if rest:
        yield rest.decode(errors="replace")


def _ignore(_: str) -> None:
    return


def read_runs(
    chosen: Filter,
    environment: Mapping[str, str] | None = None,
    silence_s: float = SILENCE_S,
    tell: Callable[[str], None] = _ignore,
) -> Iterator[JobRun]:
    """The runs; SlurmError if sacct is missing, refuses, or falls silent, also in the middle.

    ``tell`` is given a line about each row that can't be read; the others are there all the same.
    """
    environ = {**(os.environ if environment is None else environment), **TIME_FORMAT, "LC_ALL": "C.UTF-8"}
    delimiter = new_delimiter()
    command = [find_program("sacct", environ), *arguments(delimiter), *chosen.arguments()]
    with tempfile.TemporaryFile() as complaints:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=complaints, env=environ
            )
        except OSError as error:
            raise SlurmError(f"cannot run {command[0]}: {error.strerror}") from None
        try:
            fell_silent: list[str] = []
            yield from runs(_lines(process, silence_s, fell_silent), delimiter, tell)
            if fell_silent:
                raise SlurmError(fell_silent[0])
            _check_end(process, complaints)
        finally:
            _stop(process)


def _check_end(process: "subprocess.Popen[bytes]", complaints: IO[bytes]) -> None:
    if process.wait() != 0:
        complaints.seek(0)
        said = complaints.read(4096).decode(errors="replace").strip()
        raise SlurmError(f"sacct failed: {said or f'exit code {process.returncode}'}")


def _stop(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    deadline_s = time.monotonic() + 2.0
    while process.poll() is None and time.monotonic() < deadline_s:
        time.sleep(0.02)
    if process.poll() is None:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
