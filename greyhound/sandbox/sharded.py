"""The small GPT under torch's fully_shard (FSDP2), over one device mesh or another (test bed only)."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn, optim
from torch.distributed.fsdp import fully_shard

from greyhound.sandbox import loop
from greyhound.sandbox.model import LEARNING_RATE, GptShape
from greyhound.sandbox.plain_model import Gpt

CLIP_NORM = 1.0


def build(name: str, shape: GptShape, mesh: Any) -> loop.Job:
    """Each layer is sharded on its own, the rest with the root; gradients are clipped by their norm over all ranks."""
    model = Gpt(shape)
    for layer in model.decoder.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)

    @contextmanager
    def accumulate(last: bool) -> Iterator[None]:
        model.set_requires_gradient_sync(last)
        yield

    return loop.Job(
        name=name,
        model=model,
        optimizer=optim.Adam(model.parameters(), lr=LEARNING_RATE),
        accumulate=accumulate,
        finish_gradients=lambda: nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM),
    )
