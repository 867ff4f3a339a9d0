"""Train a small GPT with torch's DistributedDataParallel on the stand-in for NCCL and CUDA (test bed only)."""

import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING

from greyhound.sandbox import loop

if TYPE_CHECKING:
    from greyhound.sandbox.model import GptShape

BUCKET_MB = 0.1  # small, so that the small model has several


def build(shape: "GptShape", world_size: int) -> loop.Job:
    """Gradients are reduced in buckets while the last micro-batch's backward pass runs, and not before (no_sync)."""
    from torch import optim
    from torch.nn.parallel import DistributedDataParallel

    from greyhound.sandbox.model import LEARNING_RATE
    from greyhound.sandbox.plain_model import Gpt

    model = DistributedDataParallel(Gpt(shape), bucket_cap_mb=BUCKET_MB)
    return loop.Job(
        name=f"DDP{world_size}",
        model=model,
        optimizer=optim.Adam(model.parameters(), lr=LEARNING_RATE),
        accumulate=lambda last: nullcontext() if last else model.no_sync(),
        state=lambda: model.module.state_dict(),
    )


if __name__ == "__main__":
    sys.exit(loop.main("train_ddp", __doc__, build))
