"""Inert until the first communicator, out of LD_PRELOAD after it; forks; and every way to be unmonitored."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hook.conftest import NATIVE, Runner, Stepwise, compile_c, may_mount, shared
from tests.hook.ring_view import GH


def test_without_a_step_directory_it_is_inert_and_silent(runner: Runner) -> None:
    for value in (None, ""):
        out = runner.program("show_environment", GREYHOUND_DIR=value)
        assert out.count(str(runner.built.hook)) == 2
    assert runner.rings() == []


def test_processes_without_a_communicator_leave_no_trace(runner: Runner) -> None:
    out = runner.clean("bash", "-c", "/bin/true; printenv LD_PRELOAD")
    assert out.strip() == str(runner.built.hook) and runner.rings() == []


def test_header(runner: Runner) -> None:
    runner.program("one_call", RANK="2", LOCAL_RANK="1", SLURM_PROCID="9", GREYHOUND_NODE_INDEX="3")
    ring = runner.ring()
    assert (ring.magic, ring.layout, ring.record_bytes, ring.capacity) == (GH["MAGIC"], 2, 64, 65536)
    assert (ring.world_rank, ring.local_rank, ring.slurm_procid, ring.node_index) == (2, 1, 9, 3)
    assert ring.path.name == f"ring.{ring.pid}.{ring.pid_start}" and ring.uid == os.getuid()
    assert ring.path.stat().st_mode & 0o7777 == 0o600 and ring.path.stat().st_size == ring.file_bytes
    assert ring.text(40, 40) == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert ring.hook_state == GH["STATE_ENDED"]


@pytest.mark.parametrize(
    ("variables", "world", "local"),
    [
        ({"SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NTASKS": "8"}, 5, 1),
        ({"RANK": "6", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, 6, -1),
        ({"OMPI_COMM_WORLD_RANK": "7", "SLURM_PROCID": "0"}, 7, -1),
        ({"RANK": "many"}, -1, -1),
        ({}, -1, -1),
    ],
)
def test_rank_from_the_environment(runner: Runner, variables: dict[str, str], world: int, local: int) -> None:
    runner.program("one_call", **variables)
    assert (runner.ring().world_rank, runner.ring().local_rank) == (world, local)


def test_its_entry_leaves_ld_preload_at_the_first_communicator(runner: Runner) -> None:
    out = runner.clean("bash", "-c", f"{runner.built.program} show_environment; printenv LD_PRELOAD")
    inside, child, wrapper = out.splitlines()
    assert (inside, child) == ("LD_PRELOAD=", "child LD_PRELOAD=")
    assert wrapper == str(runner.built.hook), "the wrapper itself made no communicator"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("{hook}:{a}:{b}", "{a}:{b}"),
        ("{a} {hook}:{b}", "{a} {b}"),
        ("{a}:{b} {hook}", "{a}:{b}"),
        ("{hook} {a} {hook}", "{a}"),
        ("{hook}:{hook}", ""),
    ],
)
def test_other_entries_and_their_order_stay(runner: Runner, before: str, after: str) -> None:
    libraries = {name: runner.built.root / f"lib{name}.so" for name in "ab"}
    for path in libraries.values():
        if not path.exists():
            subprocess.run(["cc", "-shared", "-o", path, "-xc", "/dev/null"], check=True)
    names = {"hook": runner.built.hook, **libraries}
    out = runner.clean(runner.built.program, "show_environment", preload=before.format(**names))
    wanted = after.format(**names)
    assert out.splitlines() == [f"LD_PRELOAD={wanted}", f"child LD_PRELOAD={wanted}"]


@pytest.mark.parametrize("tail", ["", ":{}"])
def test_leaving_ld_preload_moves_no_variable_under_other_threads(runner: Runner, tail: str) -> None:
    other = shared(runner.built.root / "libother.so", "-xc", "/dev/null")
    left = str(other) if tail else ""
    out = runner.program("environment_stays", LD_PRELOAD=str(runner.built.hook) + tail.format(other), ZZ_LAST="1")
    assert out == f"moved 0 same place 1 held text same now '{left}'\n"


def test_an_emptied_ld_preload_is_harmless(runner: Runner) -> None:
    script = 'test "${LD_PRELOAD-unset}" = "" || exit 9; /bin/true && python3 -c "print(1)" | tr 1 2'
    assert runner.clean("bash", "-c", script, LD_PRELOAD="") == "2\n"


def test_a_rank_behind_shell_and_python_is_seen(runner: Runner) -> None:
    code = f"import subprocess; subprocess.run([{str(runner.built.program)!r}, 'one_call'], check=True)"
    runner.clean("bash", "-c", f'env "{sys.executable}" -c "{code}"')
    assert runner.ring().ops() == ["comm_init", "all_reduce"]


def test_child_of_a_process_with_a_ring_is_off(runner: Runner) -> None:
    assert runner.program("fork_after") == "child alive\n"
    assert runner.ring().ops() == ["comm_init", "all_reduce"]


def test_child_of_a_process_without_one_may_open_its_own(runner: Runner) -> None:
    runner.program("fork_before")
    assert runner.ring().ops() == ["comm_init", "all_reduce"]


def test_a_child_of_clone_does_not_end_the_ring(runner: Runner) -> None:
    runner.program("clone_after")
    assert runner.ring().hook_state == GH["STATE_RUNNING"]


def test_a_timer_does_not_keep_the_ring_from_being_made(runner: Runner) -> None:
    runner.program("under_a_timer", GREYHOUND_RING_RECORDS="1048576")
    assert runner.ring().ops() == ["comm_init", "all_reduce"]


@pytest.mark.parametrize("who", ["caller", "thread", "child-returns"])
def test_a_cuda_runtime_that_forks_while_it_is_asked(runner: Runner, who: str) -> None:
    """As the driver does to run nvidia-modprobe. The fork handlers must not wait for the opening."""
    cudart = shared(runner.built.root / "forks" / "libcudart.so.12", NATIVE / "fake_cudart.c", soname="libcudart.so.12")
    rpath = f"-Wl,-rpath,{cudart.parent}:{runner.built.nccl.parent}"
    program = compile_c(cudart.with_name("graphs"), NATIVE / "graphs.c", cudart, runner.built.nccl, rpath)
    out = runner.clean(program, FAKE_FORK=who)
    assert out == "launches 11\n" * (2 if who == "child-returns" else 1), "a child that returns goes on, unseen"
    ring = runner.ring()
    assert ring.cuda_device == 1 and ring.hook_state == GH["STATE_ENDED"] and ring.ops().count("comm_init") == 1
    assert ring.ops().count("graph_launch") == 11 and set(ring.records["thread"]) == {ring.pid}


def test_muting_and_back(runner: Runner) -> None:
    program = Stepwise(runner)
    states = []
    for mode in ("OBSERVE", "MUTED", "MUTED", "ON"):
        program.ring.set_mode(GH[f"MODE_{mode}"])
        program.call()
        ring = program.ring
        states.append((ring.hook_state, len(ring.ops()), ring.muted_calls, *ring.counts.values()))
    program.end()
    running, muted = GH["STATE_RUNNING"], GH["STATE_MUTED"]
    assert states == [(running, 2, 0, 1), (muted, 2, 1, 2), (muted, 2, 2, 3), (running, 3, 2, 4)]
    assert list(ring.records["seq"][1:]) == [0, 3], "the muted calls keep their numbers"
    assert ring.hook_flags == 0, "all calls were counted"


def test_control_page_for_the_plugin(runner: Runner) -> None:
    assert runner.program("control") == "before 0 after 1 layout 2 pid 1\n"


def test_a_bad_ring_size_is_said_and_the_default_used(runner: Runner) -> None:
    done = runner.run(runner.built.program, "one_call", GREYHOUND_RING_RECORDS="1000")
    assert done.stderr == (
        "greyhound: GREYHOUND_RING_RECORDS='1000' isn't a power of two from 1024 to 4194304; 65536 is used\n"
    )
    assert runner.ring().capacity == 65536


def test_foreign_file_at_the_ring_name(runner: Runner) -> None:
    # exec keeps pid and start time: the shell can know the name beforehand
    script = 'set -- $(cat /proc/$$/stat); echo theirs > "$GREYHOUND_DIR/ring.$$.${22}";'
    script += 'exec "$PROGRAM" show_environment ncclAllReduce'
    reason = runner.unmonitored("sh", "-c", script, PROGRAM=str(runner.built.program))
    assert reason.startswith("can't create ring.") and reason.endswith("File exists")
    (foreign,) = runner.step.iterdir()
    assert foreign.read_text() == "theirs\n"


def test_file_size_limit(runner: Runner) -> None:
    script = 'ulimit -f 64; exec "$PROGRAM" show_environment ncclAllReduce'
    reason = runner.unmonitored("sh", "-c", script, PROGRAM=str(runner.built.program))
    assert "file size limit" in reason and list(runner.step.iterdir()) == []


def test_full_shared_memory(runner: Runner) -> None:
    script = (
        'mount -t tmpfs -o size=1m,mode=0700 none "$GREYHOUND_DIR" || exit 77; '
        '"$PROGRAM" show_environment ncclAllReduce; ls -A "$GREYHOUND_DIR"'
    )
    command = ("unshare", "-m", "sh", "-c", script)
    if not may_mount():
        pytest.skip("may not mount here")
    reason = runner.unmonitored(*command, PROGRAM=str(runner.built.program))
    assert reason.startswith("no memory for ring.") and reason.endswith("No space left on device")
