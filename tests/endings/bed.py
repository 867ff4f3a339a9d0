"""A cluster on which steps of a small real training end in every way, watched or not, and what is left is counted."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import psutil

from greyhound.control.status import read_status
from greyhound.sandbox.cluster import Sandbox
from tests.conftest import NATIVE, REPOSITORY

STANDIN = NATIVE / "standin"
SOURCE = Path(__file__).with_name("train.c")
SHM = Path("/dev/shm")
PATIENCE_S = 60.0
T = TypeVar("T")


def build_training(out: Path, source: Path = SOURCE) -> Path:
    """The program of train.c, linked with the stand-in as a training is with NCCL."""
    include = REPOSITORY / "hook" / "standin" / "include"
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-O2", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", f"-I{include}"]
    links = [f"-L{STANDIN}", "-l:libnccl.so.2", "-l:libcudart.so.12", f"-Wl,-rpath,{STANDIN}"]
    subprocess.run(["cc", *flags, "-o", out, source, *links], check=True)
    return out


def until(
    condition: Callable[[], T], what: str | Callable[[], str], limit_s: float = PATIENCE_S, poll_s: float = 0.01
) -> T:
    """Wait for something true; AssertionError names it (as it is then) if it never comes."""
    end_s = time.monotonic() + limit_s
    while not (found := condition()):
        if time.monotonic() >= end_s:
            raise AssertionError(f"never came: {what if isinstance(what, str) else what()}")
        time.sleep(poll_s)
    return found


def ended(pid: int) -> bool:
    """Whether a process is gone or a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return text[text.rfind(")") + 2] in "ZX"


def kill(*pids: int) -> None:
    """-9, for those that are still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@dataclass
class Step:
    """One srun of the training in a job of its own."""

    bed: "Bed"
    watched: bool
    folder: Path
    ranks: int
    process: subprocess.Popen[str]
    uid: int
    job: int = 0
    returned_s: float = 0.0
    errors: str = ""
    _pids: list[int] = field(default_factory=list)

    def find_job(self) -> int:
        """Its job id, which the task itself leaves."""
        self.job = self.job or int(until(lambda: self._left("job"), "the job's id"))
        return self.job

    def _left(self, name: str) -> str:
        with contextlib.suppress(OSError):
            return (self.folder / name).read_text()
        assert self.process.poll() is None, self.process.communicate()
        return ""

    @property
    def pids(self) -> list[int]:
        """Of the tasks."""
        if not self._pids:
            self._pids = [int(until(lambda n=rank: self._left(f"pid.{n}"), "a task")) for rank in range(self.ranks)]
        return self._pids

    @property
    def directories(self) -> list[Path]:
        """Step directories that are there."""
        return sorted(SHM.glob(f"greyhound-*-{self.find_job()}.*"))

    def node_dir(self, index: int) -> Path:
        return SHM / f"greyhound-{self.uid}-{self.find_job()}.0.0.n{index}"

    def ours(self, module: str, node: int = 0) -> list[int]:
        """Pids of our processes of one node: `greyhound_waiter`, `greyhound.control.node`, `redis-server`..."""
        directory = str(self.node_dir(node))
        return [process.pid for process in of_directory(directory) if runs(process, module)]

    def one(self, module: str, node: int = 0) -> int:
        """The pid of the one that must be there."""
        return until(lambda: self.ours(module, node), f"{module} of node {node}")[0]

    def status(self) -> dict[str, Any]:
        """The live one; empty while there is none."""
        return read_status(self.node_dir(0) / "status.json") or {}

    def wait_for_state(self, *states: str) -> None:
        """Until the live status says one of these."""
        until(lambda: self.status().get("state") in states, lambda: f"state {states}: {self.words()}")

    def wait_for_ranks(self) -> None:
        """Until all of them are seen: analyzers, master and Redis are at work."""
        until(lambda: self.status().get("ranks") == self.ranks, lambda: f"all ranks: {self.words()}")

    def words(self) -> str:
        """What of ours is there and what it says, for a test that fails."""
        files = [file for folder in self.directories for file in [*folder.glob("*.log"), folder / "unmonitored"]]
        running = [" ".join(one.cmdline()[:4]) for one in of_directory(str(SHM / f"greyhound-{self.uid}-{self.job}."))]
        said = self.bed.run("tail", "-n", "20", *map(str, files)) if files else ""
        return f"status {self.status()}\nprocesses {running}\n{said}"

    def enough(self) -> None:
        (self.folder / "enough").touch()

    def gone_s(self, limit_s: float) -> float:
        """Wait for the last task's end; when it was (monotonic)."""
        until(lambda: all(map(ended, self.pids)), "the end of the tasks", limit_s, 0.001)
        return time.monotonic()

    def wait(self, limit_s: float = PATIENCE_S) -> int:
        """srun's exit code."""
        try:
            _, self.errors = self.process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"srun hangs: {self.bed.diagnose()}") from None
        self.returned_s = time.monotonic()
        return self.process.returncode

    def said(self) -> list[str]:
        """Our lines in what srun said, but for the usual last one."""
        return [line for line in self.errors.splitlines() if "greyhound:" in line and "greyhound: ended" not in line]

    def losses(self) -> str:
        return (self.folder / "losses").read_text()

    def left(self) -> list[str]:
        """Everything of ours that is still there: directories, processes, sockets (they are the processes')."""
        prefix = f"greyhound-{self.uid}-{self.find_job()}."
        return [str(path) for path in self.directories] + [
            f"{process.pid} {process.name()}" for process in of_directory(str(SHM / prefix)) if not ended(process.pid)
        ]

    def assert_nothing_left(self) -> None:
        until(lambda: not self.left(), lambda: f"nothing left: {self.left()}", 20)


def runs(process: psutil.Process, program: str) -> bool:
    with contextlib.suppress(psutil.Error, IndexError):
        command = process.cmdline()
        return Path(command[0]).name == program or program in command[1:4]
    return False


def of_directory(prefix: str) -> list[psutil.Process]:
    """Processes that have a path that begins with `prefix` on their command line, or work there (redis-server)."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            named = any(word.startswith(prefix) for word in process.cmdline())
            if named or os.readlink(f"/proc/{process.pid}/cwd").startswith(prefix):
                found.append(process)
    return found


class Bed:
    """The cluster, the training and a work folder."""

    def __init__(self, sandbox: Sandbox, work: Path, training: Path) -> None:
        self.sandbox, self.work, self.training = sandbox, work, training

    def srun(
        self,
        watched: bool,
        *,
        iterations: int = 100_000,
        milliseconds: int = 10,
        slurm: Sequence[str] = (),
        option: str = "",
        wrapper: str = "",
        more: Sequence[str] = (),
        command: Sequence[str] = (),
        files: Sequence[str] = (),
        prefix: Sequence[str] = (),
        uid: int | None = None,
    ) -> Step:
        """Start a step of two nodes with a task each; `wrapper` is shell text that comes before the training.

        `prefix` comes before srun, and makes it `uid`'s; `command` is another training (FOLDER: the step's).
        """
        folder = Path(tempfile.mkdtemp(dir=self.work))
        for name in files:
            (folder / name).touch()
        os.chown(folder, *(2 * [os.getuid() if uid is None else uid]))
        words = [word.replace("FOLDER", str(folder)) for word in command]
        words = words or [str(self.training), str(folder), str(iterations), str(milliseconds), *more]
        script = f"[ $SLURM_PROCID != 0 ] || echo $SLURM_JOB_ID > {folder}/job; {wrapper}exec {' '.join(words)}"
        mode = f"--greyhound={'on' + option if watched else 'off'}"
        srun = [*prefix, "srun", "-N2", "-n2", "--mem=200", mode, *slurm, "/bin/sh", "-c", script]
        process = subprocess.Popen(
            srun, env=self.sandbox.env(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        return Step(self, watched, folder, 2, process, os.getuid() if uid is None else uid)

    def run(self, *command: str) -> str:
        return self.sandbox.run(command).stdout

    def diagnose(self) -> str:
        return self.run("squeue", "-l") + self.run("sinfo", "-N", "-l") + self.run("ps", "-eo", "pid,ppid,stat,args")

    def bad_nodes(self) -> list[str]:
        """Nodes that are drained, down or in any other trouble."""
        states = [line.split() for line in self.run("sinfo", "-h", "-N", "-o", "%N %T").splitlines()]
        fine = ("idle", "mixed", "allocated", "completing")
        return [" ".join(words) for words in states if words[1].rstrip("*~#") not in fine]


@contextlib.contextmanager
def open_bed(name: str) -> Iterator[Bed]:
    """A cluster of two nodes with the plugin as it was built; all is removed again."""
    work = Path(tempfile.mkdtemp(prefix="greyhound-endings-"))
    work.chmod(0o755)
    sandbox = Sandbox.up(name, nodes=2, gpus_per_node=0)
    try:
        yield Bed(sandbox, work, build_training(work / "train"))
    finally:
        sandbox.down()
        shutil.rmtree(work, ignore_errors=True)
