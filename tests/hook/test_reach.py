"""The ways in which programs reach NCCL: seen where LD_PRELOAD can see, and never harmed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.hook.conftest import NATIVE, Built, Runner, compile_c, shared

ONE = ["comm_init", "all_reduce"]


def test_executable_linked_to_nccl(runner: Runner) -> None:
    assert runner.program("one_call", "ncclAllReduce") == "ncclAllReduce 1\n"
    assert runner.ring().ops() == ONE and runner.ring().nccl_version == 22907


def test_library_loaded_local_that_needs_nccl(runner: Runner) -> None:
    out = runner.clean(runner.built.host, runner.built.torchlike, "one_call", "ncclAllReduce")
    assert out == "ncclAllReduce 1\n" and runner.ring().ops() == ONE


def test_python_that_loads_such_a_library(runner: Runner) -> None:
    code = (
        "import ctypes, sys, subprocess\n"
        "library = ctypes.CDLL(sys.argv[1])\n"
        "arguments = (ctypes.c_char_p * 2)(b'python', b'one_call')\n"
        "assert library.run(2, arguments) == 0\n"
        "print(subprocess.run(['printenv', 'LD_PRELOAD'], stdout=-1).stdout)\n"
        "control = ctypes.CDLL(None).greyhound_control\n"
        "control.restype = ctypes.c_void_p\n"
        "layout = ctypes.c_uint32()\n"
        "print(control(ctypes.byref(layout)) is not None, layout.value)\n"
    )
    assert runner.clean(sys.executable, "-c", code, runner.built.torchlike) == "b'\\n'\nTrue 2\n"
    assert runner.ring().ops() == ONE


def test_nccl_linked_statically_with_its_symbols_exported(runner: Runner) -> None:
    out = runner.clean(runner.built.host, runner.built.static, "one_call", "ncclAllReduce")
    assert out == "ncclAllReduce 1\n" and runner.ring().ops() == ONE


@pytest.mark.parametrize("first", ["static", "torchlike"])
def test_two_nccls_in_one_process_each_get_their_own_calls(runner: Runner, first: str) -> None:
    code = (
        "import ctypes, sys\n"
        "for path in sys.argv[1:]:\n"
        "    library = ctypes.CDLL(path)\n"
        "    arguments = (ctypes.c_char_p * 2)(b'python', b'one_call')\n"
        "    assert library.run(2, arguments) == 0\n"
        "    library.fake_calls.argtypes = [ctypes.c_char_p]\n"
        "    print(library.fake_calls(b'ncclAllReduce'))\n"
    )
    libraries = [runner.built.static, runner.built.torchlike]
    out = runner.clean(sys.executable, "-c", code, *(libraries if first == "static" else reversed(libraries)))
    assert out == "1\n1\n" and runner.ring().ops() == ONE * 2


RELOAD = """
import _ctypes, ctypes, sys
mmap = ctypes.CDLL(None).mmap
mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 4]
for _ in range(2):
    library = ctypes.CDLL(sys.argv[1])
    arguments = (ctypes.c_char_p * 2)(b"python", b"one_call")
    assert library.run(2, arguments) == 0
    with open("/proc/self/maps") as maps:
        ranges = [line.split()[0].split("-") for line in maps if "libnccl.so" in line]
    _ctypes.dlclose(library._handle)
    low, high = int(ranges[0][0], 16), int(ranges[-1][1], 16)
    mmap(low, high - low, 0, 0x100022, -1, 0)  # private, anonymous, there and only if free: it can't come back there
"""


def test_a_library_that_is_unloaded_and_loaded_again(runner: Runner) -> None:
    runner.clean(sys.executable, "-c", RELOAD, runner.built.torchlike)
    assert runner.ring().ops() == ONE * 2


def test_nccl_without_profiling_names(runner: Runner) -> None:
    root = runner.built.root / "plain"
    nccl = shared(root / "libnccl.so.2", "-DFAKE_PLAIN", NATIVE / "fake_nccl.c", soname="libnccl.so.2")
    program = compile_c(root / "program", NATIVE / "program.c", nccl, "-Wl,-rpath,$ORIGIN")
    assert runner.clean(program, "one_call", "ncclAllReduce") == "ncclAllReduce 1\n"
    local = shared(root / "liblocal.so", "-DAS_LIBRARY", NATIVE / "program.c", nccl, "-Wl,-rpath,$ORIGIN")
    runner.clean(runner.built.host, local, "one_call")
    assert [ring.ops() for ring in runner.rings()] == [ONE, ONE]


@pytest.mark.parametrize("local", [True, False])
def test_rccl_by_its_name(runner: Runner, local: bool) -> None:
    """AMD's has the same functions; where it is loaded RTLD_LOCAL, by a library that doesn't name it, too."""
    root = runner.built.root / "amd"
    rccl = shared(root / "librccl.so.1", NATIVE / "fake_nccl.c", soname="librccl.so.1")
    program = compile_c(root / "program", NATIVE / "program.c", rccl, "-Wl,-rpath,$ORIGIN")
    library = shared(root / "libuser.so", "-DAS_LIBRARY", NATIVE / "program.c", rccl, "-Wl,-rpath,$ORIGIN")
    command = [runner.built.host, library] if local else [program]
    assert runner.clean(*command, "one_call", "ncclAllReduce") == "ncclAllReduce 1\n"
    assert runner.ring().ops() == ONE


def test_the_nccl_that_the_user_names(runner: Runner) -> None:
    other = runner.built.root / "other" / "libmine.so"
    shared(other, NATIVE / "fake_nccl.c")
    out = runner.program("one_call", "ncclAllReduce", GREYHOUND_NCCL_LIB=str(other))
    assert out == "ncclAllReduce 0\n", "the linked one must not be called"
    assert runner.ring().ops() == ONE


def test_a_named_nccl_that_is_missing_is_said_once_and_ignored(runner: Runner) -> None:
    done = runner.run(runner.built.program, "one_call", GREYHOUND_NCCL_LIB="/nowhere/libnccl.so.2")
    assert done.returncode == 0 and runner.ring().ops() == ONE
    assert done.stderr == "greyhound: GREYHOUND_NCCL_LIB='/nowhere/libnccl.so.2' can't be loaded and is ignored\n"


def test_hidden_nccl_runs_unseen(runner: Runner) -> None:
    sources = [NATIVE / "program.c", NATIVE / "fake_nccl.c"]
    hidden = shared(runner.built.root / "libhidden.so", "-DAS_LIBRARY", "-Wl,-Bsymbolic", *sources)
    runner.clean(runner.built.host, hidden, "one_call")
    assert runner.rings() == []


def test_a_function_that_no_library_has(runner: Runner) -> None:
    stub = shared(runner.built.root / "stub" / "libnccl.so.2", "-xc", "/dev/null", soname="libnccl.so.2")
    done = runner.run(runner.built.program, "one_call", LD_LIBRARY_PATH=str(stub.parent))
    # the program's own run path comes after LD_LIBRARY_PATH: it finds an NCCL without functions
    assert done.returncode == 3 and "FAILED" in done.stdout and ": 3\n" in done.stdout
    assert done.stderr.splitlines() == [
        "greyhound: ncclCommInitRank isn't in any library of this process; name yours in GREYHOUND_NCCL_LIB"
    ]


def test_it_needs_libc_alone_and_no_symbol_newer_than_2_17(built: Built) -> None:
    for library in (built.hook, built.reader):
        symbols = subprocess.run(["objdump", "-T", library], text=True, capture_output=True, check=True).stdout
        versions = {tuple(map(int, w.strip("()").split("_")[1].split("."))) for w in symbols.split() if "GLIBC_" in w}
        assert all(version <= (2, 17) for version in versions), sorted(versions)
        dynamic = subprocess.run(["objdump", "-p", library], text=True, capture_output=True, check=True).stdout
        needed = [line.split()[1] for line in dynamic.splitlines() if "NEEDED" in line]
        assert needed == (["libc.so.6"] if library == built.hook else []) and (versions or not needed)


def test_only_what_is_meant_is_exported(built: Built) -> None:
    out = subprocess.run(["nm", "-D", "--defined-only", built.hook], text=True, capture_output=True, check=True).stdout
    names = {line.split()[2] for line in out.splitlines()}
    assert all(name.startswith(("nccl", "pnccl", "cuda", "greyhound_control")) for name in names), names
    assert {"ncclCommShrink", "ncclAlltoAllConfig", "ncclGroupSimulateEnd", "cudaGraphLaunch"} <= names
    assert {f"p{name}" for name in names if name.startswith("nccl")} <= names
