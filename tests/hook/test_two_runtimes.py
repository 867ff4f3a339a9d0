"""Several CUDA runtimes or NCCLs in one process: every caller reaches the one that it would reach without the hook."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.hook.conftest import NATIVE, Built, Runner, shared

RUN_EACH = """
import ctypes, sys
for path in sys.argv[2:]:
    library = ctypes.CDLL(path, mode=getattr(ctypes, sys.argv[1]))
    assert library.run(2, (ctypes.c_char_p * 2)(b'python', b'one_call')) == 0
"""
RPATH = "-Wl,-rpath,$ORIGIN"


def cuda_user(built: Built, version: str, kind: str) -> Path:
    """A library linked to a CUDA runtime of that version: with or without symbol versions, or by way of another one."""
    root = built.root / f"runtime-{kind}"
    user = root / f"libuser{version}.so"
    if user.exists():
        return user
    root.mkdir(exist_ok=True)
    script = root / f"{version}.map"
    script.write_text(f"libcudart.so.{version} {{ global: *; }};\n")
    versions = [] if kind == "unversioned" else [f"-Wl,--version-script={script}"]
    soname = f"libcudart-0123abcd.so.{version}" if kind == "renamed" else f"libcudart.so.{version}"
    runtime = shared(root / soname, *versions, NATIVE / "fake_cudart.c", soname=soname)
    source = NATIVE / "cuda_user.c"
    if kind != "indirect":
        return shared(user, source, runtime, RPATH)
    between = shared(root / f"libbetween{version}.so", "-Wl,--no-as-needed", runtime, RPATH, "-xc", "/dev/null")
    # the user names the runtime's functions without their version, and needs the runtime only through another library
    return shared(user, source, "-Wl,--no-as-needed", between, RPATH, "-Wl,--unresolved-symbols=ignore-all")


def run_each(runner: Runner, mode: str, *users: Path, preload: str | None = None, **variables: str | None) -> str:
    return runner.clean(sys.executable, "-c", RUN_EACH, mode, *users, preload=preload, **variables)


@pytest.mark.parametrize("order", [("11.0", "12"), ("12", "11.0")])
@pytest.mark.parametrize("kind", ["versioned", "unversioned", "indirect", "renamed"])
@pytest.mark.parametrize("monitored", [True, False])
def test_two_cuda_runtimes_loaded_local(runner: Runner, kind: str, order: tuple[str, str], monitored: bool) -> None:
    users = [cuda_user(runner.built, version, kind) for version in order]
    variables = {} if monitored else {"GREYHOUND_DIR": None}
    assert run_each(runner, "RTLD_LOCAL", *users, **variables) == "1 1\n1 1\n"
    assert run_each(runner, "RTLD_LOCAL", *users, LD_PRELOAD=None) == "1 1\n1 1\n", "the same without the hook"


@pytest.mark.parametrize("order", [("11.0", "12"), ("12", "11.0")])
def test_two_cuda_runtimes_in_the_global_scope(runner: Runner, order: tuple[str, str]) -> None:
    users = [cuda_user(runner.built, version, "versioned") for version in order]
    assert run_each(runner, "RTLD_GLOBAL", *users) == "1 1\n1 1\n"
    assert run_each(runner, "RTLD_GLOBAL", *users, LD_PRELOAD=None) == "1 1\n1 1\n", "the same without the hook"


def test_cuda_runtime_in_the_global_scope_and_one_loaded_local(runner: Runner) -> None:
    code = RUN_EACH.replace("sys.argv[1])", "sys.argv[1] if path == sys.argv[2] else 'RTLD_LOCAL')")
    users = [cuda_user(runner.built, version, "versioned") for version in ("11.0", "12")]
    assert runner.clean(sys.executable, "-c", code, "RTLD_GLOBAL", *users) == "1 1\n1 1\n"


@pytest.mark.parametrize("first", [True, False])
def test_a_tool_around_the_hook_in_front_of_a_local_runtime(runner: Runner, first: bool) -> None:
    tool = shared(runner.built.root / "libtool_cuda.so", NATIVE / "tool_cuda.c", "-ldl")
    order = [tool, runner.built.hook] if first else [runner.built.hook, tool]
    user = cuda_user(runner.built, "12", "versioned")
    if first:
        out = run_each(runner, "RTLD_LOCAL", user, preload=":".join(map(str, order)))
        assert out == "tool\n1 1\n"
    else:  # behind the hook nothing is left for the tool to forward to, nor would there be without the hook
        done = runner.run(sys.executable, "-c", RUN_EACH, "RTLD_LOCAL", user, preload=":".join(map(str, order)))
        assert done.stdout == "tool\n" and "AssertionError" in done.stderr


@pytest.mark.parametrize("order", [("2", "9"), ("9", "2")])
def test_two_nccls_loaded_local(runner: Runner, order: tuple[str, str]) -> None:
    root = runner.built.root / "two-nccls"
    users = []
    for version in order:
        soname = f"libnccl.so.{version}"
        nccl = shared(root / soname, NATIVE / "fake_nccl.c", soname=soname)
        users.append(shared(root / f"libuser{version}.so", "-DAS_LIBRARY", NATIVE / "program.c", nccl, RPATH))
    code = RUN_EACH + "    print(library.fake_calls(b'ncclAllReduce'))\n"
    assert runner.clean(sys.executable, "-c", code, "RTLD_LOCAL", *users) == "1\n1\n"
    assert runner.ring().ops() == ["comm_init", "all_reduce"] * 2
