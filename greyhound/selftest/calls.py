"""A fixed list of collectives: made through torch, and as the hook must have recorded them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from greyhound.selftest.world import World
from greyhound.trace import layout

_FLOAT_BYTES = 4


@dataclass(frozen=True)
class Expected:
    """One call as the ring must show it: operation (GH_OP_*) and bytes (this rank's count x size of its type)."""

    op: int
    bytes: int

    def __str__(self) -> str:
        return f"{layout.OPS.get(self.op, self.op)} of {self.bytes} bytes"


@dataclass(frozen=True)
class Step:
    """Something to do with torch, the calls that it makes, and whether its result is right (None: not checked)."""

    name: str
    run: Callable[[], bool | None]
    expected: list[Expected]


def compare(expected: Sequence[Expected], records: NDArray[np.void]) -> str:
    """Empty if the records are exactly the expected calls in their order; else the first difference, in words."""
    made = [Expected(int(record["op"]), int(record["bytes"])) for record in records]
    for place, (wanted, seen) in enumerate(zip(expected, made, strict=False)):
        if wanted != seen:
            return f"call {place}: made {wanted}, recorded {seen}"
    if len(expected) != len(made):
        return f"{len(expected)} calls made, {len(made)} recorded"
    return ""


def steps(world: World) -> list[Step]:
    """The list: every collective that torch maps to one NCCL call, at three sizes, in two groups."""
    import torch.distributed as dist

    second = dist.new_group(list(range(world.size)))
    found = []
    for count in (1, 1024, 65_537):
        for group in (None, second):
            found += _collectives(world, count, group)
        found.append(_ring_exchange(world, count))
    return found


def _collectives(world: World, count: int, group: Any) -> list[Step]:
    import torch
    import torch.distributed as dist

    size, total = world.size, world.size * (world.size + 1) / 2
    own = float(world.rank + 1)

    def fresh(elements: int) -> Any:
        return torch.full((elements,), own, device=world.device)

    def all_reduce() -> bool:
        tensor = fresh(count)
        dist.all_reduce(tensor, group=group)
        return bool((tensor == total).all())

    def broadcast() -> bool:
        tensor = fresh(count)
        dist.broadcast(tensor, src=size - 1, group=group)
        return bool((tensor == size).all())

    def reduce() -> bool | None:
        tensor = fresh(count)
        dist.reduce(tensor, dst=0, group=group)
        return bool((tensor == total).all()) if world.rank == 0 else None

    def all_gather() -> bool:
        output = fresh(count * size)
        dist.all_gather_into_tensor(output, fresh(count), group=group)
        return bool((output[::count] == torch.arange(1.0, size + 1, device=world.device)).all())

    def reduce_scatter() -> bool:
        output = fresh(count)
        dist.reduce_scatter_tensor(output, fresh(count * size), group=group)
        return bool((output == total).all())

    payload = count * _FLOAT_BYTES
    table = (
        (all_reduce, layout.GH_OP_ALL_REDUCE),
        (broadcast, layout.GH_OP_BROADCAST),
        (reduce, layout.GH_OP_REDUCE),
        (all_gather, layout.GH_OP_ALL_GATHER),
        (reduce_scatter, layout.GH_OP_REDUCE_SCATTER),
    )
    return [Step(f"{run.__name__} of {count}", run, [Expected(op, payload)]) for run, op in table]


def _ring_exchange(world: World, count: int) -> Step:
    """Everybody sends to the next rank and receives from the one before, in one group."""
    import torch
    import torch.distributed as dist

    after, before = (world.rank + 1) % world.size, (world.rank - 1) % world.size

    def exchange() -> bool:
        out = torch.full((count,), float(world.rank), device=world.device)
        into = torch.empty(count, device=world.device)
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, out, after), dist.P2POp(dist.irecv, into, before)])
        for work in works:
            work.wait()
        return bool((into == before).all())

    payload = count * _FLOAT_BYTES
    calls = [Expected(layout.GH_OP_SEND, payload), Expected(layout.GH_OP_RECV, payload)]
    return Step(f"exchange of {count}", exchange, calls)
