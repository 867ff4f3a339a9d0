"""Communicators: making, splitting, ending, aborting, errors of peers, forks."""

import ctypes as c
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.standin.nccl import (
    IN_PROGRESS,
    INVALID_ARGUMENT,
    INVALID_USAGE,
    LIBRARY_DIR,
    REMOTE_ERROR,
    SUCCESS,
    Config,
    NcclError,
    Size,
    UniqueId,
    async_error,
    lib,
    new_stream,
    sync,
)
from tests.standin.ranks import Rank, run_ranks

FLOAT32, SUM = 7, 0


def total(comm: c.c_void_p, value: float) -> float:
    """Sum of one number over the communicator."""
    data = np.full(1, value, np.float32)
    lib("ncclAllReduce", data, data, Size(1), FLOAT32, SUM, comm, None)
    sync()
    return float(data[0])


def number(call: str, comm: c.c_void_p) -> int:
    value = c.c_int()
    lib(call, comm, c.byref(value))
    return value.value


def nonblocking() -> Config:
    return Config(c.sizeof(Config), 0xCAFEBEEF, 22803, 0)


def await_ready(comm: c.c_void_p) -> None:
    while async_error(comm) == IN_PROGRESS:
        time.sleep(0.001)


def identity(rank: Rank) -> tuple[int, int]:
    comm = rank.comm()
    found = number("ncclCommUserRank", comm), number("ncclCommCount", comm)
    assert number("ncclCommCuDevice", comm) == 0
    lib("ncclCommFinalize", comm)
    lib("ncclCommDestroy", comm)
    return found


def test_rank_and_size() -> None:
    assert run_ranks(3, identity) == [(0, 3), (1, 3), (2, 3)]


def many(rank: Rank) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(30):
        comm = rank.comm()
        assert total(comm, 1.0) == rank.size
        lib("ncclCommDestroy", comm)
    assert len(os.listdir("/proc/self/fd")) < before + 5


def test_thirty_communicators_one_after_the_other_leave_no_files_open() -> None:
    run_ranks(3, many)


def split(rank: Rank) -> tuple[int, float] | None:
    comm, child = rank.comm(), c.c_void_p()
    color = -1 if rank.rank == 4 else rank.rank % 2
    lib("ncclCommSplit", comm, color, -rank.rank, c.byref(child), None)
    again = c.c_void_p()
    lib("ncclCommSplit", comm, 0, 0, c.byref(again), None)
    assert total(again, 1.0) == rank.size
    assert number("ncclCommUserRank", again) == rank.rank
    if rank.rank == 4:
        assert not child.value
        return None
    found = number("ncclCommUserRank", child), total(child, 10.0**rank.rank)
    lib("ncclCommDestroy", comm)
    assert total(child, 1.0) == 2
    return found


def test_split_by_color_and_key_without_those_who_have_none() -> None:
    assert run_ranks(5, split) == [(1, 101.0), (1, 1010.0), (0, 101.0), (0, 1010.0), None]


def shrink(rank: Rank) -> tuple[int, float] | None:
    comm, child, excluded = rank.comm(), c.c_void_p(), np.array([0, 2], np.int32)
    if rank.rank in (0, 2):
        return None
    lib("ncclCommShrink", comm, excluded, 2, c.byref(child), None, 0)
    return number("ncclCommUserRank", child), total(child, 10.0**rank.rank)


def test_shrink_without_the_excluded() -> None:
    assert run_ranks(4, shrink) == [None, (0, 1010.0), None, (1, 1010.0)]


def in_group(rank: Rank) -> None:
    first, second, child = c.c_void_p(), c.c_void_p(), c.c_void_p()
    ids = [rank.unique_id(), rank.unique_id()]
    comms = [first, second] if rank.rank == 0 else [second, first]
    lib("ncclGroupStart")
    for comm in comms:
        lib("ncclCommInitRank", c.byref(comm), rank.size, ids[0] if comm is first else ids[1], rank.rank)
        assert not comm.value
    lib("ncclGroupEnd")
    lib("ncclGroupStart")
    lib("ncclCommSplit", first, 0, 0, c.byref(child), None)
    lib("ncclGroupEnd")
    assert [total(x, 1.0) for x in (first, second, child)] == [2.0] * 3


def test_communicators_made_in_a_group_in_any_order() -> None:
    run_ranks(2, in_group)


def without_waiting(rank: Rank) -> None:
    comm, child, config = c.c_void_p(), c.c_void_p(), nonblocking()
    made = rank.unique_id()
    if rank.rank == 1:
        time.sleep(0.1)
    with pytest.raises(NcclError) as caught:
        lib("ncclCommInitRankConfig", c.byref(comm), rank.size, made, rank.rank, c.byref(config))
    assert caught.value.code == IN_PROGRESS
    await_ready(comm)
    with pytest.raises(NcclError) as caught:
        lib("ncclCommSplit", comm, 0, 0, c.byref(child), c.byref(config))
    assert caught.value.code == IN_PROGRESS
    await_ready(child)
    assert total(comm, 1.0) == total(child, 1.0) == 2


def test_nonblocking_communicators() -> None:
    run_ranks(2, without_waiting)


def all_at_once(_rank: Rank) -> None:
    comms, data = (c.c_void_p * 3)(), [np.full(50_000, 1.0 + i, np.float32) for i in range(3)]
    lib("ncclCommInitAll", comms, 3, None)
    streams = []
    for device in range(3):
        lib("cudaSetDevice", device)
        streams.append(new_stream())
    lib("ncclGroupStart")
    for comm, array, stream in zip(comms, data, streams, strict=True):
        lib("ncclAllReduce", array, array, Size(50_000), FLOAT32, SUM, c.c_void_p(comm), stream)
    lib("ncclGroupEnd")
    for stream in streams:
        sync(stream)
    assert all(np.all(array == 6.0) for array in data)


def test_one_process_with_all_ranks() -> None:
    run_ranks(1, all_at_once)


def bad_init(rank: Rank) -> None:
    comm, foreign = c.c_void_p(), UniqueId()
    for size, number_, text in [(2, 2, "rank 2 of 2"), (0, 0, "rank 0 of 0"), (1, 0, "wasn't made by this library")]:
        with pytest.raises(NcclError, match=text) as caught:
            lib("ncclCommInitRank", c.byref(comm), size, foreign, number_)
        assert caught.value.code == INVALID_ARGUMENT
    used = rank.unique_id()
    lib("ncclCommInitRank", c.byref(comm), 1, used, 0)
    other = c.c_void_p()
    with pytest.raises(NcclError, match="used already"):
        lib("ncclCommInitRank", c.byref(other), 1, used, 0)
    assert not other.value


def test_bad_ranks_and_ids_are_refused() -> None:
    run_ranks(1, bad_init)


def wrong_size(rank: Rank) -> int:
    """Rank 1 says that there are 3: it is refused, and rank 0 goes on waiting for a right one."""
    made, comm = rank.unique_id(), c.c_void_p()
    if rank.rank == 1:
        time.sleep(0.1)
        with pytest.raises(NcclError, match="refused"):
            lib("ncclCommInitRank", c.byref(comm), 3, made, 1)
    lib("ncclCommInitRank", c.byref(comm), 2, made, rank.rank)
    return int(total(comm, 1.0))


def test_a_rank_with_another_size_is_refused() -> None:
    assert run_ranks(2, wrong_size) == [2, 2]


def abort_self(rank: Rank) -> None:
    """Rank 1 never calls: rank 0 is blocked until it aborts."""
    comm, stream, data = rank.comm(), new_stream(), np.zeros(1000, np.float32)
    if rank.rank == 0:
        for _ in range(3):
            lib("ncclAllReduce", data, data, Size(1000), FLOAT32, SUM, comm, stream)
        time.sleep(0.05)
        lib("ncclCommAbort", comm)
        sync(stream)
    rank.share(None)


def test_abort_frees_a_blocked_operation_and_those_behind_it() -> None:
    run_ranks(2, abort_self)


def see_abort(rank: Rank, warm: bool, bytes_: int) -> int:
    """Rank 0 leaves; the others are in an all-reduce."""
    comm, stream, data = rank.comm(), new_stream(), np.zeros(bytes_, np.uint8)
    if warm:
        lib("ncclAllReduce", data, data, Size(bytes_), 1, SUM, comm, stream)
        sync(stream)
    if rank.rank == 0:
        time.sleep(0.05)
        lib("ncclCommAbort", comm)
        return REMOTE_ERROR
    lib("ncclAllReduce", data, data, Size(bytes_), 1, SUM, comm, stream)
    sync(stream)
    found = async_error(comm)
    with pytest.raises(NcclError) as caught:
        lib("ncclAllReduce", data, data, Size(bytes_), 1, SUM, comm, stream)
    assert caught.value.code == found
    assert b"lost rank" in lib.nccl.ncclGetLastError(comm)
    lib("ncclCommAbort", comm)
    return found


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("bytes_", [8, 4_000_000])
def test_peers_of_an_aborted_rank_get_an_asynchronous_error(warm: bool, bytes_: int) -> None:
    assert run_ranks(4, see_abort, warm, bytes_) == [REMOTE_ERROR] * 4


def die(rank: Rank, found: Path) -> None:
    """Rank 1 forks a child (a data loader's worker, say), which must not keep the sockets open, and is killed."""
    comm, data = rank.comm(), np.zeros(100_000, np.float32)
    assert total(comm, 1.0) == rank.size
    if rank.rank == 1:
        child = os.fork()
        if child == 0:
            time.sleep(20)
            os._exit(0)
        found.with_suffix(".pid").write_text(str(child))
        os.kill(os.getpid(), signal.SIGKILL)
    lib("ncclAllReduce", data, data, Size(data.size), FLOAT32, SUM, comm, None)
    sync()
    os.kill(int(found.with_suffix(".pid").read_text()), signal.SIGKILL)
    found.write_text(str(async_error(comm)))


def test_a_killed_rank_is_noticed_though_its_fork_child_lives(tmp_path: Path) -> None:
    found = tmp_path / "found"
    with pytest.raises(AssertionError, match="rank 1 ended without a result"):
        run_ranks(2, die, found)
    assert int(found.read_text()) == REMOTE_ERROR


def left_early(rank: Rank) -> None:
    """A rank that has sent everything and destroyed its communicator owes nobody anything."""
    comm, data = rank.comm(), np.arange(1000, dtype=np.float32)
    if rank.rank == 0:
        lib("ncclSend", data, Size(1000), FLOAT32, 1, comm, None)
        lib("ncclCommDestroy", comm)
    rank.share(None)
    if rank.rank == 1:
        got = np.zeros(1000, np.float32)
        lib("ncclRecv", got, Size(1000), FLOAT32, 0, comm, None)
        sync()
        assert async_error(comm) == SUCCESS
        assert np.array_equal(got, data)


def test_data_sent_before_a_destroy_arrives() -> None:
    run_ranks(2, left_early)


def forked(rank: Rank) -> None:
    comm = rank.comm()
    assert total(comm, 1.0) == rank.size
    child = os.fork()
    if child == 0:
        data, code = np.zeros(1, np.float32), SUCCESS
        try:
            lib("ncclAllReduce", data, data, Size(1), FLOAT32, SUM, comm, None)
        except NcclError as error:
            code = error.code
        os._exit(0 if code == INVALID_USAGE and lib.nccl.ncclCommDestroy(comm) == INVALID_USAGE else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert total(comm, 1.0) == rank.size


def test_a_fork_child_is_refused_and_the_parent_goes_on() -> None:
    run_ranks(2, forked)


def test_symbols_are_weak_with_a_strong_twin_at_the_same_address() -> None:
    for name in ("AllReduce", "CommInitRank", "GroupEnd", "AlltoAll", "GetErrorString"):
        addresses = {c.cast(getattr(lib.nccl, p + name), c.c_void_p).value for p in ("nccl", "pnccl")}
        assert len(addresses) == 1, name
    assert (LIBRARY_DIR / "libnccl.so").resolve() == (LIBRARY_DIR / "libnccl.so.2").resolve()


def test_version_and_texts() -> None:
    version = c.c_int()
    lib("ncclGetVersion", c.byref(version))
    lib.nccl.ncclGetErrorString.restype = c.c_char_p
    assert version.value == 22803
    assert lib.nccl.ncclGetErrorString(REMOTE_ERROR).startswith(b"remote process exited")
    assert lib.nccl.ncclGetErrorString(77) == b"unknown result code"


def abort_unfinished(rank: Rank) -> None:
    """The second rank never comes."""
    comm, config = c.c_void_p(), nonblocking()
    with pytest.raises(NcclError):
        lib("ncclCommInitRankConfig", c.byref(comm), 2, rank.unique_id(), 0, c.byref(config))
    time.sleep(0.05)
    assert async_error(comm) == IN_PROGRESS
    with pytest.raises(NcclError, match="still being made"):
        total(comm, 1.0)
    lib("ncclCommAbort", comm)
    assert total(rank.comm(), 1.0) == 1


def test_a_communicator_that_never_gets_complete_can_be_aborted() -> None:
    run_ranks(1, abort_unfinished)


def beside_a_real_runtime(rank: Rank, real: Path) -> None:
    """As in a process with a CUDA build of torch: the same soname is taken, by a library without our functions."""
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-Wl,-soname,libcudart.so.12", "-x", "c", "/dev/null", "-o", real], check=True
    )
    program = (
        "import ctypes as c, sys\n"
        "c.CDLL(sys.argv[1], mode=c.RTLD_GLOBAL)\n"
        "version = c.c_int()\n"
        "assert c.CDLL(sys.argv[2]).ncclGetVersion(c.byref(version)) == 0\n"
        "print(version.value)\n"
    )
    command = [sys.executable, "-c", program, real, LIBRARY_DIR / "libnccl.so.2"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "22803\n"


def test_loads_beside_another_library_with_the_runtimes_soname(tmp_path: Path) -> None:
    run_ranks(1, beside_a_real_runtime, tmp_path / "libcudart-real.so")
