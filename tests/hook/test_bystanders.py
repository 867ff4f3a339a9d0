"""Programs that have nothing to do with NCCL, or can't be preloaded into: with the hook they run as without it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.hook.conftest import Runner, compile_c

HELLO = '#include <stdio.h>\n#include <unistd.h>\nint main(void) { return printf("%d\\n", (int)geteuid()) < 0; }\n'


def hello(folder: Path, name: str, *flags: str) -> Path:
    source = folder / f"{name}.c"
    source.write_text(HELLO)
    return compile_c(folder / name, source, *flags)


def same(
    runner: Runner, *command: object, user: int | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """The run under the hook, after a look that nothing of it differs from the run without."""
    runs = []
    for preload in (str(runner.built.hook), None):
        environment = runner.variables(LD_PRELOAD=preload, **variables)
        arguments = [str(part) for part in command]
        runs.append(subprocess.run(arguments, env=environment, text=True, capture_output=True, timeout=60, user=user))
    under, without = runs
    assert (under.returncode, under.stdout, under.stderr) == (without.returncode, without.stdout, without.stderr)
    assert list(runner.step.iterdir()) == []
    return under


def test_a_statically_linked_program(runner: Runner, tmp_path: Path) -> None:
    assert same(runner, hello(tmp_path, "static", "-static")).stdout == f"{os.geteuid()}\n"


def test_a_program_whose_loader_is_missing(runner: Runner, tmp_path: Path) -> None:
    """As one built for musl, where musl isn't installed: the shell says so, and goes on."""
    program = hello(tmp_path, "musl", "-Wl,--dynamic-linker=/lib/ld-none-x86_64.so.1")
    done = same(runner, "/bin/sh", "-c", f"{program}; echo $?; /bin/echo on")
    assert done.stdout == "127\non\n" and "not found" in done.stderr


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")
def test_a_setuid_program(runner: Runner) -> None:
    """The loader leaves our entry out where it must not trust it, without a word."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        program = hello(Path(folder), "setuid")
        program.chmod(0o4755)
        assert same(runner, program, user=65534).stdout == "0\n"


@pytest.mark.parametrize("content", [b"", b"no library", b"\x7fELF\x02\x01\x01" + bytes(200)])
def test_a_hostile_library_path(runner: Runner, tmp_path: Path, content: bytes) -> None:
    """Nothing of the hook's is looked for there but libc, which every program needs."""
    for name in (
        "libdl.so.2",
        "libpthread.so.0",
        "librt.so.1",
        "libgcc_s.so.1",
        "libgreyhound_hook.so",
        "libcuda.so.1",
    ):
        (tmp_path / name).write_bytes(content)
    assert same(runner, "/bin/echo", "on", LD_LIBRARY_PATH=f"{tmp_path}:.::/nowhere").stdout == "on\n"
    runner.environment["LD_LIBRARY_PATH"] = str(tmp_path)
    assert runner.program("one_call", "ncclAllReduce") == "ncclAllReduce 1\n"
    assert runner.ring().ops() == ["comm_init", "all_reduce"]


def test_a_hostile_python_environment(runner: Runner, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('custom')\n")
    code = "import subprocess; print(subprocess.run(['/bin/true']).returncode)"
    assert same(runner, sys.executable, "-c", code, PYTHONPATH=str(tmp_path)).stdout == "custom\n0\n"
