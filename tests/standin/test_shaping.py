"""GPU speeds and links from the page: modelled durations, compared as ratios with wide bounds."""

import ctypes as c
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.standin.nccl import Size, elapsed_s, kernel, lib, new_event, new_stream, sync
from tests.standin.page import Page
from tests.standin.ranks import Rank, run_ranks

MIB = 1 << 20


@pytest.fixture
def page(tmp_path: Path) -> Page:
    return Page(tmp_path / "page", [f"n{i // 2}:{i % 2}" for i in range(8)])


def environment(page: Page) -> dict[str, str]:
    return {"GREYHOUND_STANDIN_PAGE": str(page.path)}


def place(rank: Rank) -> None:
    """Two GPUs a node, as the page names them."""
    os.environ["GREYHOUND_STANDIN_NODE"] = f"n{rank.rank // 2}"
    os.environ["CUDA_VISIBLE_DEVICES"] = str(rank.rank % 2)


def duration_s(stream: c.c_void_p, work: Callable[[], None]) -> float:
    start, end = new_event(), new_event()
    lib("cudaEventRecord", start, stream)
    work()
    lib("cudaEventRecord", end, stream)
    sync(stream)
    return elapsed_s(start, end)


def modelled_s(stream: c.c_void_p, work: Callable[[], None]) -> float:
    """Behind a long kernel, so that the host's own delays don't count: exact on a busy machine too."""
    kernel(stream, 0.3)
    return duration_s(stream, work)


def speeds(rank: Rank, page: Page) -> tuple[float, float, float, float]:
    place(rank)
    stream = new_stream()
    healthy = modelled_s(stream, lambda: kernel(stream, 0.1))
    rank.share(None)
    if rank.rank == 1:
        page.speed(1, 0.5)
    slow = modelled_s(stream, lambda: kernel(stream, 0.1))
    gemm = modelled_s(stream, lambda: lib.cuda.standinGemm(stream, 2048, 0, 300))
    return healthy, slow, gemm, lib.cuda.standinGpuSpeed()


def test_a_gpu_at_half_speed_takes_twice_as_long_at_once(page: Page) -> None:
    first, second = run_ranks(2, speeds, page, env=environment(page))
    (healthy0, same0, gemm0, speed0), (healthy1, slow1, gemm1, speed1) = first, second
    assert (speed0, speed1) == (1.0, 0.5)
    assert same0 / healthy0 == pytest.approx(1.0, rel=0.01)
    assert slow1 / healthy1 == pytest.approx(2.0, rel=0.01)
    assert gemm1 / gemm0 == pytest.approx(2.0, rel=0.01)


def send_or_recv(rank: Rank, bytes_: int) -> float:
    comm, stream, data = rank.comm(), new_stream(), np.zeros(bytes_, np.uint8)
    call = "ncclSend" if rank.rank == 0 else "ncclRecv"
    lib(call, data, Size(bytes_), 1, 1 - rank.rank, comm, stream)
    sync(stream)
    return duration_s(stream, lambda: lib(call, data, Size(bytes_), 1, 1 - rank.rank, comm, stream))


def transfers(rank: Rank) -> tuple[float, float]:
    place(rank)
    return send_or_recv(rank, 4 * MIB), send_or_recv(rank, 8)


def test_a_transfer_takes_latency_and_bytes_over_rate(page: Page) -> None:
    page.link(0, 1, bytes_per_s=50e6, latency_s=0.02)
    long_s, short_s = map(max, zip(*run_ranks(2, transfers, env=environment(page)), strict=True))
    assert 0.95 < long_s / (4 * MIB / 50e6 + 0.02) < 2.0
    assert 0.95 < short_s / 0.02 < 3.0


def all_reduce(rank: Rank, bytes_: int) -> float:
    place(rank)
    comm, stream, data = rank.comm(), new_stream(), np.zeros(bytes_ // 4, np.float32)
    lib("ncclAllReduce", data, data, Size(data.size), 7, 0, comm, stream)
    sync(stream)
    return duration_s(stream, lambda: lib("ncclAllReduce", data, data, Size(data.size), 7, 0, comm, stream))


@pytest.mark.parametrize("size", [2, 4])
def test_a_ring_feels_its_slow_link(page: Page, size: int) -> None:
    page.link(1, 2 % size, bytes_per_s=50e6)
    expected_s = 2 * (size - 1) / size * 4 * MIB / 50e6
    assert 0.95 < max(run_ranks(size, all_reduce, 4 * MIB, env=environment(page))) / expected_s < 2.0


def test_a_link_outside_the_ring_is_not_felt(page: Page) -> None:
    page.link(0, 2, bytes_per_s=1e6)
    assert max(run_ranks(4, all_reduce, 4 * MIB, env=environment(page))) < 2.0


def changes(rank: Rank, page: Page) -> list[float]:
    place(rank)
    comm, stream, data = rank.comm(), new_stream(), np.zeros(4 * MIB, np.uint8)
    call, durations_s = "ncclSend" if rank.rank == 0 else "ncclRecv", []
    for bytes_per_s in (20e6, 10e6, 0):
        if rank.rank == 0:
            page.link(0, 1, bytes_per_s=bytes_per_s)
        rank.share(None)
        durations_s.append(duration_s(stream, lambda: lib(call, data, Size(data.size), 1, 1 - rank.rank, comm, stream)))
    return durations_s


def test_a_link_changes_while_the_job_runs(page: Page) -> None:
    slow, slower, free = map(max, zip(*run_ranks(2, changes, page, env=environment(page)), strict=True))
    assert 1.4 < slower / slow < 3.0
    assert free < slow


def reports_speed(_rank: Rank) -> float:
    return lib.cuda.standinGpuSpeed()


@pytest.mark.parametrize("content", [b"", b"x" * 100, b"x" * 80_000])
def test_a_foreign_page_leaves_everything_healthy_and_is_said_once(
    tmp_path: Path, content: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "page"
    path.write_bytes(content)
    assert run_ranks(1, reports_speed, env={"GREYHOUND_STANDIN_PAGE": str(path)}) == [1.0]
    assert capfd.readouterr().err.count(str(path)) == 1


def devices(_rank: Rank) -> tuple[int, bytes]:
    count, bus = c.c_int(), c.create_string_buffer(16)
    lib("cudaGetDeviceCount", c.byref(count))
    if count.value:
        lib("cudaDeviceGetPCIBusId", bus, 16, 0)
    return count.value, bus.value


def test_visible_devices_and_bus_ids(page: Page) -> None:
    def seen(**env: str) -> tuple[int, bytes]:
        return run_ranks(1, devices, env=environment(page) | {"GREYHOUND_STANDIN_NODE": "n1"} | env)[0]

    assert seen() == (2, b"0000:01:00.0")
    assert seen(CUDA_VISIBLE_DEVICES="1,0") == (2, b"0000:02:00.0")
    assert seen(CUDA_VISIBLE_DEVICES="1,7,0") == (1, b"0000:02:00.0")
    assert seen(CUDA_VISIBLE_DEVICES="")[0] == 0
