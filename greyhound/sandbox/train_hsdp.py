"""Train a small GPT with HSDP (fully_shard, 2 replicas) on the stand-in for NCCL and CUDA (test bed only)."""

import sys
from typing import TYPE_CHECKING

from greyhound.sandbox import loop

if TYPE_CHECKING:
    from greyhound.sandbox.model import GptShape

REPLICAS = 2


def build(shape: "GptShape", world_size: int) -> loop.Job:
    """Two replicas, each sharded over half of the ranks."""
    from torch.distributed.device_mesh import init_device_mesh

    from greyhound.sandbox import sharded

    if world_size % REPLICAS:
        raise ValueError(f"HSDP needs a multiple of {REPLICAS} ranks, not {world_size}")
    sizes = (REPLICAS, world_size // REPLICAS)
    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=("replicate", "shard"))
    return sharded.build(f"HSDP of {sizes[0]} x {sizes[1]}", shape, mesh)


if __name__ == "__main__":
    sys.exit(loop.main("train_hsdp", __doc__, build))
