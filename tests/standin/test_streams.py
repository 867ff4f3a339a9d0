"""Streams, events, modelled kernels and graphs of the CUDA runtime stand-in."""

import ctypes as c
import os
import time

import numpy as np
import pytest

from tests.standin.nccl import NOT_READY, NcclError, Size, elapsed_s, kernel, lib, new_event, new_stream, sync
from tests.standin.ranks import Rank, run_ranks

HOST_FUNCTION = c.CFUNCTYPE(None, c.c_void_p)


def isolated(function):  # the parent process must not start streams: it forks
    def test() -> None:
        run_ranks(1, function)

    test.__name__ = function.__name__
    return test


@isolated
def test_the_host_runs_ahead(_rank: Rank) -> None:
    stream, event = new_stream(), new_event()
    kernel(stream, 0.3)
    lib("cudaEventRecord", event, stream)
    assert lib.cuda.cudaStreamQuery(stream) == NOT_READY
    assert lib.cuda.cudaEventQuery(event) == NOT_READY
    lib("cudaEventSynchronize", event)
    sync(stream)
    assert lib.cuda.cudaEventQuery(event) == 0
    assert lib.cuda.cudaStreamQuery(stream) == 0


@isolated
def test_kernels_on_one_stream_follow_each_other_exactly(_rank: Rank) -> None:
    stream, start, end = new_stream(), new_event(), new_event()
    kernel(stream, 0.3)  # the host's own delays don't count behind it
    lib("cudaEventRecord", start, stream)
    for _ in range(20):
        kernel(stream, 0.002)
    lib("cudaEventRecord", end, stream)
    sync(stream)
    assert elapsed_s(start, end) == pytest.approx(0.04, rel=0.01)


@isolated
def test_a_kernel_launched_in_the_past_counts_from_there(_rank: Rank) -> None:
    stream, start, end = new_stream(), new_event(), new_event()
    lib("cudaEventRecord", start, stream)
    launch_ns = lib.cuda.standinNow()
    time.sleep(0.3)
    kernel(stream, 0.5, launch_ns)
    lib("cudaEventRecord", end, stream)
    sync(stream)
    assert elapsed_s(start, end) < 0.75


@isolated
def test_a_stream_waits_for_another_ones_event(_rank: Rank) -> None:
    first, second = new_stream(), new_stream()
    gate, end = new_event(), new_event()
    data = np.zeros(4, np.uint8)
    kernel(first, 0.1)
    lib("cudaMemsetAsync", data, 7, Size(4), first)
    lib("cudaEventRecord", gate, first)
    seen = np.zeros(4, np.uint8)
    lib("cudaStreamWaitEvent", second, gate, 0)
    lib("cudaMemcpyAsync", seen, data, Size(4), 4, second)
    lib("cudaEventRecord", end, second)
    sync(second)
    assert seen.tolist() == [7] * 4
    assert elapsed_s(gate, end) >= 0


@isolated
def test_waiting_for_an_event_never_recorded_is_no_wait(_rank: Rank) -> None:
    stream = new_stream()
    lib("cudaStreamWaitEvent", stream, new_event(), 0)
    sync(stream)


@isolated
def test_destroyed_streams_and_events_finish_their_work(_rank: Rank) -> None:
    data = np.zeros(1, np.uint8)
    for value in range(1, 30):
        stream, event = new_stream(), new_event()
        kernel(stream, 0.001)
        lib("cudaMemsetAsync", data, value, Size(1), stream)
        lib("cudaEventRecord", event, stream)
        done = new_event()
        lib("cudaEventRecord", done, stream)
        lib("cudaStreamDestroy", stream)
        lib("cudaEventDestroy", event)
        lib("cudaEventSynchronize", done)
        assert data[0] == value


@isolated
def test_device_synchronize_host_functions_and_memory(_rank: Rank) -> None:
    calls, pointer = [], c.c_void_p()
    function = HOST_FUNCTION(lambda data: calls.append(data))
    stream = new_stream()
    kernel(stream, 0.05)
    lib("cudaLaunchHostFunc", stream, function, c.c_void_p(5))
    lib("cudaDeviceSynchronize")
    assert calls == [5]
    lib("cudaMalloc", c.byref(pointer), Size(1000))
    assert pointer.value % 256 == 0
    lib("cudaMemset", pointer, 3, Size(1000))
    out = np.zeros(1000, np.uint8)
    lib("cudaMemcpy", out, pointer, Size(1000), 2)
    assert set(out) == {3}
    lib("cudaFree", pointer)


@isolated
def test_bad_arguments_are_errors(_rank: Rank) -> None:
    assert lib.cuda.standinKernel(None, c.c_uint64(0), c.c_double(-1)) == 1
    assert lib.cuda.standinGemm(None, 0, 0, 1) < 0
    assert lib.cuda.cudaSetDevice(99) == 101
    assert lib.cuda.cudaGetLastError() == 101
    assert lib.cuda.cudaGetLastError() == 0


def replay(rank: Rank) -> tuple[list[float], float]:
    comm, stream, side = rank.comm(), new_stream(), new_stream()
    graph, executable, status, capture = c.c_void_p(), c.c_void_p(), c.c_int(), c.c_ulonglong()
    data, fork = np.full(1000, rank.rank + 1.0, np.float32), new_event()
    lib("cudaStreamBeginCapture", stream, 0)
    lib("cudaStreamIsCapturing", stream, c.byref(status))
    assert status.value == 1
    lib("cudaStreamGetCaptureInfo_v2", stream, c.byref(status), c.byref(capture), None, None, None)
    assert (status.value, capture.value) == (1, 1)
    kernel(stream, 0.001)
    lib("cudaEventRecord", fork, stream)
    lib("cudaStreamWaitEvent", side, fork, 0)
    lib("ncclAllReduce", data, data, Size(1000), 7, 0, comm, side)
    assert lib.cuda.cudaStreamSynchronize(stream) == 900
    lib("cudaStreamEndCapture", stream, c.byref(graph))
    lib("cudaGraphInstantiate", c.byref(executable), graph, c.c_ulonglong(0))
    lib("cudaGraphDestroy", graph)
    before = float(data[0])
    sums = []
    for _ in range(3):
        lib("cudaGraphLaunch", executable, stream)
        sync(stream)
        sums.append(float(data[0]))
    lib("cudaGraphExecDestroy", executable)
    lib("ncclCommDestroy", comm)
    return sums, before


def test_a_captured_all_reduce_runs_at_every_launch_and_not_before() -> None:
    for rank, (sums, before) in enumerate(run_ranks(2, replay)):
        assert before == rank + 1
        assert sums == [3.0, 6.0, 12.0]


@isolated
def test_asking_an_event_spoils_a_capture_unless_the_thread_is_relaxed(_rank: Rank) -> None:
    stream, event, graph = new_stream(), new_event(), c.c_void_p()
    lib("cudaEventRecord", event, new_stream())
    lib("cudaEventSynchronize", event)
    for mode, answer, end in ((2, 0, 0), (0, 900, 901)):
        lib("cudaStreamBeginCapture", stream, 0)
        before = c.c_int(mode)
        lib("cudaThreadExchangeStreamCaptureMode", c.byref(before))
        assert lib.cuda.cudaEventQuery(event) == answer
        lib("cudaThreadExchangeStreamCaptureMode", c.byref(before))
        assert lib.cuda.cudaStreamEndCapture(stream, c.byref(graph)) == end


@isolated
def test_an_event_that_is_not_ready_leaves_an_error_behind(_rank: Rank) -> None:
    stream, event = new_stream(), new_event()
    kernel(stream, 0.3)
    lib("cudaEventRecord", event, stream)
    assert lib.cuda.cudaEventQuery(event) == NOT_READY == lib.cuda.cudaGetLastError()


@isolated
def test_a_fork_child_is_told_and_does_not_hang(_rank: Rank) -> None:
    stream = new_stream()
    kernel(stream, 0.01)
    sync(stream)
    child = os.fork()
    if child == 0:
        inherited = lib.cuda.cudaStreamSynchronize(stream)
        fresh = new_stream()
        kernel(fresh, 0.001)
        sync(fresh)
        sync()
        os._exit(0 if inherited == 3 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    kernel(stream, 0.001)
    sync(stream)


@isolated
def test_errors_carry_the_code(_rank: Rank) -> None:
    with pytest.raises(NcclError, match="cudaStreamDestroy returned 400"):
        lib("cudaStreamDestroy", None)
