"""One rank of the backend tests: runs every operation on the backend under test and on gloo, prints the differences."""

import json
import os
import sys
from collections.abc import Callable

import torch
import torch.distributed as dist

from greyhound.sandbox import torch_backend

Operation = Callable[[dist.ProcessGroup, int, int], list[torch.Tensor]]
OPERATIONS: dict[str, Operation] = {}


def operation(function: Operation) -> Operation:
    OPERATIONS[function.__name__] = function
    return function


def data(rank: int, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Small whole numbers, so that sums are exact in every type and order."""
    generator = torch.Generator().manual_seed(77 + rank)
    return torch.randint(-8, 9, shape, generator=generator).to(dtype)


def all_reduce_of(dtype: torch.dtype, op: dist.ReduceOp.RedOpType) -> Operation:
    def reduce(group: dist.ProcessGroup, rank: int, size: int) -> list[torch.Tensor]:
        tensor = data(rank, 5, 7, dtype=dtype)
        dist.all_reduce(tensor, op, group=group)
        return [tensor]

    return reduce


for _dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64):
    for _op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.MIN):
        OPERATIONS[f"all_reduce {_dtype} {_op}"] = all_reduce_of(_dtype, _op)


@operation
def all_reduce_large(group, rank, size):
    tensor = data(rank, 300_001)
    dist.all_reduce(tensor, group=group)
    return [tensor]


@operation
def all_reduce_average(group, rank, size):
    tensor = data(rank, 9)
    if dist.get_backend(group) == "gloo":
        dist.all_reduce(tensor, group=group)
        return [tensor / size]
    dist.all_reduce(tensor, dist.ReduceOp.AVG, group=group)
    return [tensor]


@operation
def all_reduce_coalesced(group, rank, size):
    tensors = [data(rank, 3), data(rank, 4, 2), data(rank, 1)]
    with dist.distributed_c10d._coalescing_manager(group=group):
        for tensor in tensors:
            dist.all_reduce(tensor, group=group)
    return tensors


@operation
def all_reduce_async(group, rank, size):
    tensors = [data(rank + i, 1000) for i in range(20)]
    works = [dist.all_reduce(tensor, group=group, async_op=True) for tensor in tensors]
    for work in reversed(works):
        work.wait()
    return tensors


@operation
def all_reduce_future(group, rank, size):
    tensor = data(rank, 11)
    future = dist.all_reduce(tensor, group=group, async_op=True).get_future()
    return list(future.then(lambda f: [t * 2 for t in f.value()]).wait())


@operation
def broadcast(group, rank, size):
    tensor = data(rank, 6)
    flags = torch.tensor([rank == size - 1, True])
    dist.broadcast(tensor, size - 1, group=group)
    dist.broadcast(flags, size - 1, group=group)
    return [tensor, flags]


@operation
def reduce(group, rank, size):
    tensor = data(rank, 6)
    dist.reduce(tensor, 1, group=group)
    return [tensor] if rank == 1 else []


@operation
def all_gather(group, rank, size):
    outputs = [torch.empty(2, 3) for _ in range(size)]
    dist.all_gather(outputs, data(rank, 2, 3), group=group)
    return outputs


@operation
def all_gather_into_tensor(group, rank, size):
    output = torch.empty(size * 2, 3)
    dist.all_gather_into_tensor(output, data(rank, 2, 3), group=group)
    return [output]


@operation
def all_gather_into_tensor_coalesced(group, rank, size):
    outputs = [torch.empty(size * 2), torch.empty(size * 5)]
    with dist.distributed_c10d._coalescing_manager(group=group):
        for output in outputs:
            dist.all_gather_into_tensor(output, data(rank, output.numel() // size), group=group)
    return outputs


@operation
def all_gather_object(group, rank, size):
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank, "text": "x" * (rank + 1)}, group=group)
    assert objects == [{"rank": r, "text": "x" * (r + 1)} for r in range(size)]
    return []


@operation
def reduce_scatter(group, rank, size):
    output = torch.empty(4)
    dist.reduce_scatter(output, [data(rank + 10 * i, 4) for i in range(size)], group=group)
    return [output]


@operation
def reduce_scatter_tensor(group, rank, size):
    output = torch.empty(3)
    dist.reduce_scatter_tensor(output, data(rank, 3 * size), group=group)
    return [output]


@operation
def reduce_scatter_tensor_coalesced(group, rank, size):
    outputs = [torch.empty(2), torch.empty(5)]
    with dist.distributed_c10d._coalescing_manager(group=group):
        for output in outputs:
            dist.reduce_scatter_tensor(output, data(rank, output.numel() * size), group=group)
    return outputs


@operation
def all_to_all_single(group, rank, size):
    output = torch.empty(size * 2, 3)
    dist.all_to_all_single(output, data(rank, size * 2, 3), group=group)
    return [output]


@operation
def all_to_all_single_uneven(group, rank, size):
    sends = [rank + peer + 1 for peer in range(size)]
    output = torch.empty(sum(sends), 2)
    dist.all_to_all_single(output, data(rank, sum(sends), 2), sends, sends, group=group)
    return [output]


@operation
def all_to_all(group, rank, size):
    inputs = [data(rank * size + peer, 3) for peer in range(size)]
    outputs = [torch.empty(3) for _ in range(size)]
    if dist.get_backend(group) == "gloo":  # has no list form
        return [data(peer * size + rank, 3) for peer in range(size)]
    dist.all_to_all(outputs, inputs, group=group)
    return outputs


@operation
def gather(group, rank, size):
    outputs = [torch.empty(4) for _ in range(size)] if rank == 1 else None
    dist.gather(data(rank, 4), outputs, 1, group=group)
    return outputs or []


@operation
def scatter(group, rank, size):
    output = torch.empty(4)
    inputs = [data(100 + peer, 4) for peer in range(size)] if rank == 0 else None
    dist.scatter(output, inputs, 0, group=group)
    return [output]


@operation
def send_and_receive(group, rank, size):
    tensor = data(rank, 8) if rank == 0 else torch.empty(8)
    if rank > 0:
        dist.recv(tensor, rank - 1, group=group)
    if rank < size - 1:
        dist.send(tensor, rank + 1, group=group)
    return [tensor]


@operation
def batch_of_sends_and_receives(group, rank, size):
    right, left = (rank + 1) % size, (rank - 1) % size
    received, longer = torch.empty(5), torch.empty(250_000)
    operations = [
        dist.P2POp(dist.isend, data(rank, 5), right, group),
        dist.P2POp(dist.isend, data(rank, 250_000), right, group),
        dist.P2POp(dist.irecv, received, left, group),
        dist.P2POp(dist.irecv, longer, left, group),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    return [received, longer]


@operation
def dropped_work(group, rank, size):
    """A send whose handle and tensor nobody keeps still arrives."""
    if dist.get_backend(group) == "gloo":  # cancels a send whose handle is dropped
        return [data(0, 10_000)] if rank == 1 else []
    if rank == 0:
        dist.isend(data(0, 10_000), 1, group=group)
        torch.full((10_000,), -1.0)
    received = torch.empty(10_000)
    if rank == 1:
        dist.recv(received, 0, group=group)
    dist.barrier(group)
    return [received] if rank == 1 else []


@operation
def barrier(group, rank, size):
    dist.barrier(group)
    return []


def compare(name: str, ours: dist.ProcessGroup, gloo: dist.ProcessGroup, rank: int, size: int) -> str:
    """Empty if both give the same bits."""
    got = OPERATIONS[name](ours, rank, size)
    wanted = OPERATIONS[name](gloo, rank, size)
    same = len(got) == len(wanted) and all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True))
    return "" if same else f"got {got}, gloo {wanted}"


def main() -> int:
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    torch_backend.register().set_device(rank)
    dist.init_process_group(torch_backend.BACKEND_NAME)
    gloo = dist.new_group(backend="gloo")
    results = {name: compare(name, dist.group.WORLD, gloo, rank, size) for name in OPERATIONS}
    halves = [dist.new_group(range(size // 2)), dist.new_group(range(size // 2, size))]
    mine = halves[rank * 2 // size]
    tensor = torch.tensor([float(rank)])
    dist.all_reduce(tensor, group=mine)
    wanted = sum(range(size // 2)) if rank < size // 2 else sum(range(size // 2, size))
    results["sub-group"] = "" if tensor.item() == wanted else f"got {tensor}, wanted {wanted}"
    print(json.dumps(results))
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
