"""Runs a function as several ranks, each in a forked process of its own."""

import contextlib
import ctypes as c
import multiprocessing
import os
import traceback
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any

from tests.standin.nccl import UniqueId, lib

LIMIT_S = 30
FORK = multiprocessing.get_context("fork")


class Rank:
    """What a test function gets: its number, and a way to make communicators."""

    def __init__(self, rank: int, size: int, ids: list[tuple[Connection, Connection]]) -> None:
        self.rank, self.size, self._ids = rank, size, ids

    def share(self, value: Any) -> Any:
        """The value of rank 0, on all ranks."""
        if self.rank == 0:
            for _, writer in self._ids[1:]:
                writer.send(value)
            return value
        return self._ids[self.rank][0].recv()

    def unique_id(self) -> UniqueId:
        made = UniqueId()
        if self.rank == 0:
            lib("ncclGetUniqueId", c.byref(made))
        return UniqueId.from_buffer_copy(self.share(bytes(made)))

    def comm(self) -> c.c_void_p:
        comm = c.c_void_p()
        lib("ncclCommInitRank", c.byref(comm), self.size, self.unique_id(), self.rank)
        return comm


def _child(function: Callable[..., Any], rank: Rank, result: Connection, env: Mapping[str, str], args: tuple) -> None:
    os.environ.update(env)
    with contextlib.ExitStack() as on_failure:
        on_failure.callback(lambda: result.send((False, traceback.format_exc())))
        answer = function(rank, *args)
        on_failure.pop_all()
    result.send((True, answer))


def run_ranks(size: int, function: Callable[..., Any], *args: Any, env: Mapping[str, str] | None = None) -> list[Any]:
    """The ranks' results in order; a rank that fails or hangs fails the test with its traceback."""
    ids = [FORK.Pipe(duplex=False) for _ in range(size)]
    pipes = [FORK.Pipe(duplex=False) for _ in range(size)]
    processes = [
        FORK.Process(target=_child, args=(function, Rank(r, size, ids), pipes[r][1], env or {}, args), daemon=True)
        for r in range(size)
    ]
    for process in processes:
        process.start()
    for _, writer in pipes:
        writer.close()
    try:
        return [_result(reader, r) for r, (reader, _) in enumerate(pipes)]
    finally:
        for process in processes:
            process.join(0.5)
            if process.is_alive():
                process.kill()
                process.join()


def _result(reader: Connection, rank: int) -> Any:
    assert reader.poll(LIMIT_S), f"rank {rank} is still running after {LIMIT_S} s"
    try:
        ok, value = reader.recv()
    except EOFError:
        raise AssertionError(f"rank {rank} ended without a result") from None
    assert ok, f"rank {rank}:\n{value}"
    return value
