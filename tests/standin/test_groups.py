"""Point to point and groups: full duplex, order, streams, and misuse."""

import ctypes as c

import numpy as np
import pytest

from tests.standin.nccl import (
    INVALID_ARGUMENT,
    INVALID_USAGE,
    NcclError,
    Size,
    async_error,
    kernel,
    lib,
    new_stream,
    sync,
)
from tests.standin.ranks import Rank, run_ranks

MIB = 1 << 20
UINT8, FLOAT32, SUM = 1, 7, 0


def pattern(rank: int, count: int) -> np.ndarray:
    return np.random.default_rng(rank).integers(0, 256, count, np.uint8)


def send(data: np.ndarray, peer: int, comm: c.c_void_p, stream: c.c_void_p | None) -> None:
    lib("ncclSend", data, Size(data.size), UINT8, peer, comm, stream)


def recv(data: np.ndarray, peer: int, comm: c.c_void_p, stream: c.c_void_p | None) -> None:
    lib("ncclRecv", data, Size(data.size), UINT8, peer, comm, stream)


def exchange(rank: Rank) -> None:
    comm, stream, peer = rank.comm(), new_stream(), 1 - rank.rank
    for count in (1, MIB, 5 * MIB):
        mine, got = pattern(rank.rank, count), np.zeros(count, np.uint8)
        lib("ncclGroupStart")
        send(mine, peer, comm, stream)
        recv(got, peer, comm, stream)
        lib("ncclGroupEnd")
        sync(stream)
        assert np.array_equal(got, pattern(peer, count)), count


def test_both_ways_at_once_in_a_group() -> None:
    run_ranks(2, exchange)


def two_streams(rank: Rank) -> None:
    comm, one, two, peer = rank.comm(), new_stream(), new_stream(), 1 - rank.rank
    mine, got = pattern(rank.rank, MIB), np.zeros(MIB, np.uint8)
    kernel(one, 0.02)
    if rank.rank == 0:
        send(mine, peer, comm, one)
        recv(got, peer, comm, two)
    else:
        recv(got, peer, comm, one)
        send(mine, peer, comm, two)
    sync(one)
    sync(two)
    assert np.array_equal(got, pattern(peer, MIB))


def test_ungrouped_exchange_through_two_streams() -> None:
    run_ranks(2, two_streams)


def two_communicators(rank: Rank) -> None:
    forth, back, peer = rank.comm(), rank.comm(), 1 - rank.rank
    one, two = new_stream(), new_stream()
    mine, got = pattern(rank.rank, MIB), np.zeros(MIB, np.uint8)
    send(mine, peer, (forth, back)[rank.rank], one)
    recv(got, peer, (back, forth)[rank.rank], two)
    sync(one)
    sync(two)
    assert np.array_equal(got, pattern(peer, MIB))


def test_send_first_on_both_sides_through_two_communicators() -> None:
    run_ranks(2, two_communicators)


def pipeline(rank: Rank) -> None:
    """As a pipeline's stages: receive from the previous stage, send to the next, many in a row."""
    comm, stream = rank.comm(), new_stream()
    data = pattern(0, 100_000) if rank.rank == 0 else np.zeros(100_000, np.uint8)
    for _ in range(50):
        if rank.rank > 0:
            recv(data, rank.rank - 1, comm, stream)
        if rank.rank < rank.size - 1:
            send(data, rank.rank + 1, comm, stream)
    sync(stream)
    assert np.array_equal(data, pattern(0, 100_000))


def test_a_pipeline_of_sends() -> None:
    run_ranks(4, pipeline)


def all_pairs(rank: Rank) -> None:
    """Everybody to everybody, itself included, several messages of different sizes a pair."""
    comm, stream, n = rank.comm(), new_stream(), rank.size
    sizes = [1000, 70_000, 3]
    got = {(p, k): np.zeros(size, np.uint8) for p in range(n) for k, size in enumerate(sizes)}
    mine = {key: pattern(100 * rank.rank + 10 * key[0] + key[1], data.size) for key, data in got.items()}
    lib("ncclGroupStart")
    for (peer, _), data in mine.items():
        send(data, peer, comm, stream)
    for (peer, _), data in got.items():
        recv(data, peer, comm, stream)
    lib("ncclGroupEnd")
    sync(stream)
    for (peer, k), data in got.items():
        assert np.array_equal(data, pattern(100 * peer + 10 * rank.rank + k, sizes[k])), (peer, k)


def mixed(rank: Rank) -> None:
    """One group with an all-reduce and an exchange, called in another order on the other rank."""
    comm, one, two, peer = rank.comm(), new_stream(), new_stream(), 1 - rank.rank
    mine, got = pattern(rank.rank, MIB), np.zeros(MIB, np.uint8)
    total = np.full(MIB, rank.rank + 1.0, np.float32)
    lib("ncclGroupStart")
    if rank.rank == 0:
        lib("ncclAllReduce", total, total, Size(MIB), FLOAT32, SUM, comm, one)
    recv(got, peer, comm, two)
    send(mine, peer, comm, two)
    if rank.rank == 1:
        lib("ncclAllReduce", total, total, Size(MIB), FLOAT32, SUM, comm, one)
    lib("ncclGroupEnd")
    sync(one)
    sync(two)
    assert np.all(total == 3.0)
    assert np.array_equal(got, pattern(peer, MIB))


def test_collectives_and_point_to_point_in_one_group() -> None:
    run_ranks(2, mixed)


def several_communicators(rank: Rank) -> None:
    comms, stream, data = [rank.comm() for _ in range(4)], new_stream(), []
    order = comms if rank.rank == 0 else comms[::-1]
    for _ in range(3):
        lib("ncclGroupStart")
        for comm in order:
            data.append(np.full(200_000, rank.rank + 1.0, np.float32))
            lib("ncclAllReduce", data[-1], data[-1], Size(200_000), FLOAT32, SUM, comm, stream)
        lib("ncclGroupEnd")
    sync(stream)
    assert all(np.all(d == 3.0) for d in data)


def test_several_communicators_in_one_group_on_one_stream() -> None:
    run_ranks(2, several_communicators)


def nested(rank: Rank) -> None:
    comm, data = rank.comm(), np.ones(10, np.float32)
    lib("ncclGroupStart")
    lib("ncclGroupStart")
    lib("ncclAllReduce", data, data, Size(10), FLOAT32, SUM, comm, None)
    lib("ncclGroupEnd")
    sync()
    assert np.all(data == 1.0)
    lib("ncclGroupEnd")
    sync()
    assert np.all(data == 2.0)
    lib("ncclGroupStart")
    lib("ncclAllReduce", data, data, Size(10), FLOAT32, SUM, comm, None)
    lib("ncclGroupSimulateEnd", None)
    sync()
    assert np.all(data == 2.0)


def test_nested_groups_launch_at_the_outermost_end_and_simulated_ones_never() -> None:
    run_ranks(2, nested)


def misuse(rank: Rank) -> None:
    comm, data = rank.comm(), np.zeros(4, np.float32)
    for arguments, text in [
        ((None, data, Size(4), FLOAT32, SUM, comm, None), "NULL"),
        ((data, data, Size(4), 99, SUM, comm, None), "data type 99"),
        ((data, data, Size(4), 10, SUM, comm, None), "fp8"),
        ((data, data, Size(4), FLOAT32, 77, comm, None), "operator 77"),
    ]:
        with pytest.raises(NcclError, match=text) as caught:
            lib("ncclAllReduce", *arguments)
        assert caught.value.code == INVALID_ARGUMENT
    with pytest.raises(NcclError, match="rank 5 in a communicator of 2"):
        lib("ncclSend", data, Size(4), FLOAT32, 5, comm, None)
    with pytest.raises(NcclError, match="without ncclGroupStart"):
        lib("ncclGroupEnd")
    lib("ncclGroupStart")
    with pytest.raises(NcclError):
        lib("ncclAllReduce", data, data, Size(4), 99, SUM, comm, None)
    with pytest.raises(NcclError) as caught:
        lib("ncclGroupEnd")
    assert caught.value.code == INVALID_ARGUMENT
    lib("ncclAllReduce", data, data, Size(0), FLOAT32, SUM, comm, None)
    lib("ncclAllReduce", data, data, Size(4), FLOAT32, SUM, comm, None)
    sync()


def test_misuse_is_refused_and_leaves_the_communicator_usable() -> None:
    run_ranks(2, misuse)


def mismatch(rank: Rank) -> int:
    comm, data = rank.comm(), np.zeros(100, np.uint8)
    if rank.rank == 0:
        send(data[:50], 1, comm, None)
    else:
        recv(data, 0, comm, None)
    sync()
    return async_error(comm)


def test_sizes_that_do_not_match_are_an_error_not_a_hang() -> None:
    assert run_ranks(2, mismatch)[1] == INVALID_USAGE


def lonely(rank: Rank) -> int:
    comm, data = rank.comm(), np.zeros(100, np.uint8)
    send(data, 0, comm, None)
    sync()
    return async_error(comm)


def test_a_send_to_itself_without_a_receive_is_an_error() -> None:
    assert run_ranks(1, lonely) == [INVALID_USAGE]


@pytest.mark.parametrize("size", [1, 3, 5])
def test_all_pairs_and_itself(size: int) -> None:
    run_ranks(size, all_pairs)
