"""Builds the hook, fake NCCLs and the programs that use them, once a session; runs them under the hook."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.hook.ring_view import ROOT, Ring

UNMONITORED = "greyhound: this process runs unmonitored: "
NATIVE = Path(__file__).parent / "native"
CC = os.environ.get("CC", "cc")
FLAGS = ["-std=gnu11", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"]


def may_mount() -> bool:
    command = ["unshare", "-m", "sh", "-c", "mount -t tmpfs none /mnt"]
    return not subprocess.run(command, capture_output=True).returncode


def compile_c(out: Path, *arguments: object) -> Path:
    out.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([CC, *FLAGS, "-o", str(out), *map(str, arguments)], check=True, timeout=120)
    return out


def shared(out: Path, *arguments: object, soname: str | None = None) -> Path:
    name = [f"-Wl,-soname,{soname}"] if soname else []
    return compile_c(out, "-shared", "-fPIC", *name, *arguments)


def build_hook(out: Path, flags: str = "") -> Path:
    environment = {**os.environ, "OUT": str(out), "CFLAGS": flags}
    subprocess.run(["sh", str(ROOT / "hook" / "build.sh")], check=True, env=environment, timeout=300)
    return out / "libgreyhound_hook.so"


@dataclass
class Built:
    """Paths of everything built for the session."""

    root: Path
    hook: Path
    reader: Path
    nccl: Path  # libnccl.so.2, counting
    program: Path  # linked to it
    torchlike: Path  # library that needs libnccl.so.2
    static: Path  # library with NCCL inside, symbols exported
    host: Path  # loads a library RTLD_LOCAL


def build_programs(root: Path) -> dict[str, Path]:
    nccl = shared(root / "linked" / "libnccl.so.2", NATIVE / "fake_nccl.c", soname="libnccl.so.2")
    rpath = "-Wl,-rpath,$ORIGIN"
    source = NATIVE / "program.c"
    return {
        "nccl": nccl,
        "program": compile_c(root / "linked" / "program", source, nccl, rpath),
        "torchlike": shared(root / "linked" / "libtorchlike.so", "-DAS_LIBRARY", source, nccl, rpath),
        "static": shared(root / "static" / "libstatic.so", "-DAS_LIBRARY", source, NATIVE / "fake_nccl.c"),
        "host": compile_c(root / "host", NATIVE / "host.c", "-ldl"),
    }


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    root = tmp_path_factory.mktemp("hook")
    hook = build_hook(root / "native")
    return Built(root, hook, hook.with_name("libgreyhound_reader.so"), **build_programs(root))


@dataclass
class Runner:
    """Runs commands with the hook preloaded and a step directory of their own."""

    built: Built
    step: Path
    environment: dict[str, str] = field(default_factory=dict)

    def variables(self, preload: str | None = None, **more: str | None) -> dict[str, str]:
        base = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "GREYHOUND", "FAKE"))}
        base.pop("RANK", None)
        values = {"GREYHOUND_DIR": str(self.step), "LD_PRELOAD": preload or str(self.built.hook)}
        merged: dict[str, str | None] = {**base, **values, **self.environment, **more}
        return {k: v for k, v in merged.items() if v is not None}

    def run(self, *command: object, preload: str | None = None, **more: str | None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(c) for c in command], env=self.variables(preload, **more), text=True, capture_output=True, timeout=60
        )

    def clean(self, *command: object, preload: str | None = None, **more: str | None) -> str:
        """Standard output of a run that must succeed and say nothing on standard error."""
        done = self.run(*command, preload=preload, **more)
        assert (done.returncode, done.stderr) == (0, ""), (done.returncode, done.stdout, done.stderr)
        return done.stdout

    def program(self, scenario: str, *more: str, **variables: str | None) -> str:
        return self.clean(self.built.program, scenario, *more, **variables)

    def unmonitored(self, *command: object, **variables: str | None) -> str:
        """The reason given by a run that must succeed otherwise, with exactly one line."""
        done = self.run(*(command or (self.built.program, "show_environment", "ncclAllReduce")), **variables)
        assert done.returncode == 0 and "ncclAllReduce 1\n" in done.stdout, done
        lines = done.stderr.splitlines()
        assert len(lines) == 1 and lines[0].startswith(UNMONITORED), done.stderr
        return lines[0].removeprefix(UNMONITORED)

    def rings(self) -> list[Ring]:
        return [Ring(path, self.built.reader) for path in sorted(self.step.iterdir())]

    def ring(self) -> Ring:
        rings = self.rings()
        assert len(rings) == 1, rings
        return rings[0]


class Stepwise:
    """The stepwise scenario: one all-reduce at a time, when the test says so."""

    def __init__(self, runner: Runner, **variables: str) -> None:
        self.process = subprocess.Popen(
            [runner.built.program, "stepwise"],
            env=runner.variables(**variables),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        assert self.process.stdout and self.process.stdout.readline() == "ready\n"
        self.ring = runner.ring()

    def call(self) -> None:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write("go\n")
        assert self.process.stdout.readline() == "called\n"

    def end(self) -> None:
        assert self.process.communicate(timeout=60) == ("", "")


@pytest.fixture
def runner(built: Built) -> Iterator[Runner]:
    step = Path(tempfile.mkdtemp(prefix="greyhound-test-", dir="/dev/shm"))
    step.chmod(0o700)
    kept = os.open(step, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(kept, fcntl.LOCK_EX)  # as the plugin's waiter does: else the hook removes its ring at the exit
    yield Runner(built, step)
    os.close(kept)
    shutil.rmtree(step, ignore_errors=True)
