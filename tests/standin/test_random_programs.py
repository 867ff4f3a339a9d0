"""Random but matching programs on all ranks: groups of any calls, several communicators and streams."""

import ctypes as c
import random

import numpy as np
import pytest

from tests.standin.nccl import SUCCESS, Size, async_error, kernel, lib, new_stream, sync
from tests.standin.ranks import Rank, run_ranks

INT64, SUM = 4, 0
SIZES = [1, 10, 1000, 40_000, 150_000]


class Program:
    """Issues calls whose results are known; every rank draws the same random numbers."""

    def __init__(self, rank: Rank, seed: int) -> None:
        self.rank, self.random = rank, random.Random(seed)
        self.comms = [rank.comm() for _ in range(2)]
        self.streams = [new_stream() for _ in range(3)]
        self.expected: list[tuple[str, np.ndarray, np.ndarray]] = []

    def run(self, steps: int) -> None:
        for _ in range(steps):
            stream = self.random.choice(self.streams)
            if self.random.random() < 0.2:
                kernel(stream, 0.001)
            self._group(self.random.choice(self.comms), self.random.randint(1, 4))
        for stream in self.streams:
            sync(stream)
        assert [async_error(comm) for comm in self.comms] == [SUCCESS] * 2
        for name, got, expected in self.expected:
            assert np.array_equal(got, expected), name

    def _group(self, comm: c.c_void_p, calls: int) -> None:
        stream = self.random.choice(self.streams)
        lib("ncclGroupStart")
        for _ in range(calls):
            kind = self.random.choice([self._all_reduce, self._all_gather, self._all_to_all, self._shift])
            kind(comm, stream, self.random.choice(SIZES))
        lib("ncclGroupEnd")

    def _data(self, rank: int, count: int, salt: int) -> np.ndarray:
        return np.arange(count, dtype=np.int64) * (rank + 1) + salt

    def _expect(self, name: str, got: np.ndarray, expected: np.ndarray) -> None:
        self.expected.append((name, got, expected))

    def _all_reduce(self, comm: c.c_void_p, stream: c.c_void_p, count: int) -> None:
        salt, n = self.random.randrange(100), self.rank.size
        data = self._data(self.rank.rank, count, salt)
        lib("ncclAllReduce", data, data, Size(count), INT64, SUM, comm, stream)
        self._expect("all-reduce", data, sum(self._data(r, count, salt) for r in range(n)))

    def _all_gather(self, comm: c.c_void_p, stream: c.c_void_p, count: int) -> None:
        salt, n, me = self.random.randrange(100), self.rank.size, self.rank.rank
        out = np.zeros((n, count), np.int64)
        out[me] = self._data(me, count, salt)
        lib("ncclAllGather", out[me], out, Size(count), INT64, comm, stream)
        self._expect("all-gather", out, np.stack([self._data(r, count, salt) for r in range(n)]))

    def _all_to_all(self, comm: c.c_void_p, stream: c.c_void_p, count: int) -> None:
        salt, n, me = self.random.randrange(100), self.rank.size, self.rank.rank
        data = np.stack([self._data(me, count, salt + p) for p in range(n)])
        out = np.zeros((n, count), np.int64)
        lib("ncclAlltoAll", data, out, Size(count), INT64, comm, stream)
        self._expect("all-to-all", out, np.stack([self._data(r, count, salt + me) for r in range(n)]))
        self._expect("its input", data, data.copy())

    def _shift(self, comm: c.c_void_p, stream: c.c_void_p, count: int) -> None:
        salt, n, me = self.random.randrange(100), self.rank.size, self.rank.rank
        by = self.random.randrange(n)
        data, out = self._data(me, count, salt), np.zeros(count, np.int64)
        lib("ncclSend", data, Size(count), INT64, (me + by) % n, comm, stream)
        lib("ncclRecv", out, Size(count), INT64, (me - by) % n, comm, stream)
        self._expect("shift", out, self._data((me - by) % n, count, salt))
        self._expect("its input", data, data.copy())


def program(rank: Rank, seed: int) -> None:
    Program(rank, seed).run(40)


@pytest.mark.parametrize(("size", "seed"), [(2, 1), (3, 2), (4, 3), (5, 4)])
def test_random_programs_end_and_compute_right(size: int, seed: int) -> None:
    run_ranks(size, program, seed)
