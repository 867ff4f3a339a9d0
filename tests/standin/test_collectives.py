"""Every collective against numpy: all types, operators and 2 to 5 ranks."""

import ctypes as c

import numpy as np
import pytest

from tests.standin import arrays
from tests.standin.nccl import DTYPES, OPS, Size, lib, new_stream, sync
from tests.standin.ranks import Rank, run_ranks

SIZES = [2, 3, 4, 5]
COUNTS = [1, 3, 1000, 50_001]


def check_all_reduce(rank: Rank, comm: c.c_void_p, stream: c.c_void_p, dtype: str, op: str, count: int) -> None:
    mine = arrays.encode(arrays.values(rank.rank, count, dtype), dtype)
    out = np.zeros_like(mine)
    lib("ncclAllReduce", mine, out, Size(count), DTYPES[dtype], OPS[op], comm, stream)
    lib("ncclAllReduce", mine, mine, Size(count), DTYPES[dtype], OPS[op], comm, stream)
    sync(stream)
    expected = arrays.reduced(rank.size, count, dtype, op)
    assert arrays.same(out, expected, dtype, op), ("all-reduce", dtype, op, count)
    assert np.array_equal(out, mine), ("all-reduce in place", dtype, op, count)


def check_reduce(rank: Rank, comm: c.c_void_p, stream: c.c_void_p, dtype: str, op: str, count: int) -> None:
    root = count % rank.size
    mine = arrays.encode(arrays.values(rank.rank, count, dtype), dtype)
    out = np.zeros_like(mine)
    lib("ncclReduce", mine, out if rank.rank == root else None, Size(count), DTYPES[dtype], OPS[op], root, comm, stream)
    sync(stream)
    if rank.rank == root:
        expected = arrays.reduced(rank.size, count, dtype, op)
        assert arrays.same(out, expected, dtype, op), ("reduce", dtype, op, count)


def check_reduce_scatter(rank: Rank, comm: c.c_void_p, stream: c.c_void_p, dtype: str, op: str, count: int) -> None:
    total = count * rank.size
    mine = arrays.encode(arrays.values(rank.rank, total, dtype), dtype)
    out = np.zeros(count, mine.dtype)
    block = mine[rank.rank * count : (rank.rank + 1) * count]
    lib("ncclReduceScatter", mine, out, Size(count), DTYPES[dtype], OPS[op], comm, stream)
    sync(stream)
    lib("ncclReduceScatter", mine, block, Size(count), DTYPES[dtype], OPS[op], comm, stream)
    sync(stream)
    expected = arrays.reduced(rank.size, total, dtype, op)[rank.rank * count : (rank.rank + 1) * count]
    assert arrays.same(out, expected, dtype, op), ("reduce-scatter", dtype, op, count)
    assert np.array_equal(out, block), ("reduce-scatter in place", dtype, op, count)


def reductions(rank: Rank) -> None:
    comm, stream = rank.comm(), new_stream()
    for dtype in DTYPES:
        for op in OPS:
            for count in COUNTS:
                check_all_reduce(rank, comm, stream, dtype, op, count)
                check_reduce(rank, comm, stream, dtype, op, count)
            check_reduce_scatter(rank, comm, stream, dtype, op, 777)
    lib("ncclCommDestroy", comm)


@pytest.mark.parametrize("size", SIZES)
def test_reductions_equal_numpy_for_every_type_and_operator(size: int) -> None:
    run_ranks(size, reductions)


def moves(rank: Rank) -> None:
    comm, stream, n, me = rank.comm(), new_stream(), rank.size, rank.rank
    for dtype, code in DTYPES.items():
        for count in (1, 33_333):
            data = [arrays.encode(arrays.values(r, count * n, dtype), dtype) for r in range(n)]
            root = count % n
            mine, block = data[me], slice(me * count, (me + 1) * count)

            out = np.zeros(count, mine.dtype)
            lib("ncclBroadcast", mine, out, Size(count), code, root, comm, stream)
            sync(stream)
            assert np.array_equal(out, data[root][:count]), ("broadcast", dtype)

            own = mine[:count].copy()
            lib("ncclBcast", own, Size(count), code, root, comm, stream)
            sync(stream)
            assert np.array_equal(own, data[root][:count]), ("bcast", dtype)

            gathered = np.zeros(count * n, mine.dtype)
            expected = np.concatenate([d[:count] for d in data])
            lib("ncclAllGather", mine, gathered, Size(count), code, comm, stream)
            sync(stream)
            assert np.array_equal(gathered, expected), ("all-gather", dtype)
            in_place = np.zeros(count * n, mine.dtype)
            in_place[block] = mine[:count]
            lib("ncclAllGather", in_place[block], in_place, Size(count), code, comm, stream)
            sync(stream)
            assert np.array_equal(in_place, expected), ("all-gather in place", dtype)

            lib("ncclAlltoAll", mine, gathered, Size(count), code, comm, stream)
            sync(stream)
            assert np.array_equal(gathered, np.concatenate([d[block] for d in data])), ("all-to-all", dtype)

            lib("ncclGather", mine, gathered if me == root else None, Size(count), code, root, comm, stream)
            sync(stream)
            assert me != root or np.array_equal(gathered, expected), ("gather", dtype)

            lib("ncclScatter", mine if me == root else None, out, Size(count), code, root, comm, stream)
            sync(stream)
            assert np.array_equal(out, data[root][block]), ("scatter", dtype)
    lib("ncclCommDestroy", comm)


@pytest.mark.parametrize("size", SIZES)
def test_data_movements_equal_numpy(size: int) -> None:
    run_ranks(size, moves)


def random_sums(rank: Rank) -> list[bytes]:
    comm, stream, count = rank.comm(), new_stream(), 100_003
    results = []
    for dtype in ("float16", "float32", "float64", "bfloat16"):
        values = np.random.default_rng(rank.rank).normal(size=count)
        data = arrays.encode(values, dtype)
        lib("ncclAllReduce", data, data, Size(count), DTYPES[dtype], OPS["sum"], comm, stream)
        sync(stream)
        expected = sum(
            arrays.decode(arrays.encode(np.random.default_rng(r).normal(size=count), dtype), dtype)
            for r in range(rank.size)
        )
        tolerance = {"float16": 2e-2, "bfloat16": 2e-1, "float32": 1e-5, "float64": 1e-12}[dtype]
        assert np.allclose(arrays.decode(data, dtype), expected, atol=tolerance), dtype
        results.append(data.tobytes())
    return results


def test_a_sum_has_the_same_bits_on_every_rank_and_in_every_run() -> None:
    first, second = run_ranks(4, random_sums), run_ranks(4, random_sums)
    assert all(rank == first[0] for rank in first + second)


def scaled_sum(rank: Rank) -> np.ndarray:
    comm, op = rank.comm(), c.c_int()
    scalar, data = np.array([0.5], np.float32), np.full(1000, rank.rank + 1, np.float32)
    lib("ncclRedOpCreatePreMulSum", c.byref(op), scalar, DTYPES["float32"], 1, comm)
    lib("ncclAllReduce", data, data, Size(1000), DTYPES["float32"], op, comm, None)
    sync()
    lib("ncclRedOpDestroy", op, comm)
    return data


def test_premultiplied_sum() -> None:
    assert all(np.all(data == 3.0) for data in run_ranks(3, scaled_sum))


def alone(rank: Rank) -> None:
    comm, data, out = rank.comm(), np.arange(10, dtype=np.float32), np.zeros(10, np.float32)
    for call in ("ncclAllReduce", "ncclReduceScatter"):
        out[:] = 0
        lib(call, data, out, Size(10), DTYPES["float32"], OPS["avg"], comm, None)
        sync()
        assert np.array_equal(out, data)
    out[:] = 0
    lib("ncclAllGather", data, out, Size(10), DTYPES["float32"], comm, None)
    sync()
    assert np.array_equal(out, data)


def test_one_rank() -> None:
    run_ranks(1, alone)
