"""The hook under the address, undefined-behaviour and thread sanitizers."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.hook import test_storm
from tests.hook.conftest import NATIVE, Runner, build_hook, compile_c, shared

pytestmark = pytest.mark.sanitizer
ASAN = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer"]
TSAN = ["-fsanitize=thread", "-Wno-tsan"]


def sanitized(runner: Runner, name: str, flags: list[str]) -> Path:
    """A folder with the hook, a program of all scenarios and the stress program, linked to the hook ahead of NCCL."""
    root = runner.built.root / name
    if root.exists():
        return root
    hook = build_hook(root, " ".join(flags))
    rpath = f"-Wl,-rpath,{root}:{runner.built.nccl.parent}"
    libraries = ["-Wl,--no-as-needed", hook, runner.built.nccl, rpath]
    compile_c(root / "program", *flags, NATIVE / "program.c", *libraries)
    cudart = shared(root / "libcudart.so.12", NATIVE / "fake_cudart.c", soname="libcudart.so.12")
    compile_c(root / "graphs", *flags, NATIVE / "graphs.c", *libraries, cudart)
    compile_c(root / "stress", *flags, NATIVE / "stress.c", hook.with_name("libgreyhound_reader.so"), *libraries)
    test_storm.build(root, runner, *flags)
    return root


def run(runner: Runner, *command: str) -> str:
    options = {"ASAN_OPTIONS": "detect_leaks=0", "TSAN_OPTIONS": "halt_on_error=1 die_after_fork=0"}
    return runner.clean(*command, **options, LD_PRELOAD=None)


@pytest.mark.parametrize("scenario", ["every_operation", "identities", "groups", "reuse", "many", "threads", "race"])
@pytest.mark.parametrize(("name", "flags"), [("asan", ASAN), ("tsan", TSAN)])
def test_scenarios(runner: Runner, name: str, flags: list[str], scenario: str) -> None:
    root = sanitized(runner, name, flags)
    runner.environment["CALLS"] = "200"
    run(runner, str(root / "program"), scenario)
    assert runner.ring().head > 0


@pytest.mark.parametrize(("name", "flags"), [("asan", ASAN), ("tsan", TSAN)])
def test_graphs(runner: Runner, name: str, flags: list[str]) -> None:
    root = sanitized(runner, name, flags)
    assert run(runner, str(root / "graphs")) == "launches 11\n" and runner.ring().hook_flags == 0


@pytest.mark.parametrize(("name", "flags"), [("asan", ASAN), ("tsan", TSAN)])
def test_stress(runner: Runner, name: str, flags: list[str]) -> None:
    root = sanitized(runner, name, flags)
    runner.environment["GREYHOUND_RING_RECORDS"] = "1024"
    out = run(runner, str(root / "stress"), "1500")
    assert out.startswith("read ")


@pytest.mark.parametrize(("name", "flags"), [("asan", ASAN), ("tsan", TSAN)])
def test_storm_of_threads_communicators_and_forks(runner: Runner, name: str, flags: list[str]) -> None:
    root = sanitized(runner, name, flags)
    runner.environment["GREYHOUND_RING_RECORDS"] = test_storm.RING
    test_storm.check(run(runner, str(root / "storm"), "100", "fork"), 16 * 100 * 4)


def test_the_sanitizer_would_see_a_race(tmp_path: Path) -> None:
    """The runs above mean something only if this one fails."""
    source = tmp_path / "race.c"
    source.write_text(
        "#include <pthread.h>\nint n;\nvoid *f(void *x) { n++; return x; }\n"
        "int main(void) { pthread_t t; pthread_create(&t, 0, f, 0); n++; return pthread_join(t, 0); }\n"
    )
    program = compile_c(tmp_path / "race", *TSAN, source)
    environment = {**os.environ, "TSAN_OPTIONS": "halt_on_error=1"}
    done = subprocess.run([program], env=environment, capture_output=True, timeout=60)
    assert done.returncode != 0 and b"data race" in done.stderr
