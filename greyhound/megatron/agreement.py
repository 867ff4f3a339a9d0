"""All ranks take a plan at the same iteration, agreed in the training's own process group.

At each iteration a rank posts the number of the newest plan that it has (two 8-byte numbers, MIN of it and of its
negative) and reads the answer one iteration later, when it has long been there: the host doesn't wait for it. Only a
number that all ranks have, and the same one, is taken; the answer is equal everywhere, hence so is the iteration.
"""

from typing import Any


class Agreement:
    """One all-reduce an iteration over `group` (None: the world)."""

    def __init__(self, group: Any = None) -> None:
        import torch
        import torch.distributed as dist

        self._group = group
        on_gpu = "nccl" in str(dist.get_backend(group))
        self._device = torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")
        # A stream of its own: on the training's, waiting for the slowest rank would hold up its kernels.
        self._stream = torch.cuda.Stream(self._device) if on_gpu else None
        self._pending: tuple[Any, Any, Any] | None = None

    def step(self, newest: int) -> int:
        """Post `newest`; the number that all ranks had posted an iteration ago, -1 where they differed or at first."""
        agreed = self._read()
        self._post(newest)
        return agreed

    def _post(self, newest: int) -> None:
        import torch
        import torch.distributed as dist

        numbers = torch.tensor([newest, -newest], dtype=torch.int64)
        if self._stream is None:
            work = dist.all_reduce(numbers, op=dist.ReduceOp.MIN, group=self._group, async_op=True)
            self._pending = (work, numbers, None)
            return
        with torch.cuda.stream(self._stream):
            there = numbers.pin_memory().to(self._device, non_blocking=True)
            dist.all_reduce(there, op=dist.ReduceOp.MIN, group=self._group, async_op=True).wait()  # the stream waits
            answer = torch.empty(2, dtype=torch.int64, pin_memory=True)
            answer.copy_(there, non_blocking=True)
            ready = torch.cuda.Event()
            ready.record()
        self._pending = (None, answer, ready)

    def _read(self) -> int:
        if self._pending is None:
            return -1
        work, answer, ready = self._pending
        self._pending = None
        if work is not None:
            work.wait()
        if ready is not None:
            ready.synchronize()
        least, most = int(answer[0]), -int(answer[1])
        return least if least == most else -1

    def finish(self) -> None:
        """Before the process group is destroyed."""
        self._read()
