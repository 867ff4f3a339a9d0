"""Train a small GPT with torch's fully_shard (FSDP2) on the stand-in for NCCL and CUDA (test bed only)."""

import sys
from typing import TYPE_CHECKING

from greyhound.sandbox import loop

if TYPE_CHECKING:
    from greyhound.sandbox.model import GptShape


def build(shape: "GptShape", world_size: int) -> loop.Job:
    """Sharded over all ranks."""
    from torch.distributed.device_mesh import init_device_mesh

    from greyhound.sandbox import sharded

    return sharded.build(f"FSDP2 over {world_size}", shape, init_device_mesh("cpu", (world_size,)))


if __name__ == "__main__":
    sys.exit(loop.main("train_fsdp2", __doc__, build))
