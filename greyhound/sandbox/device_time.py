"""Modelled device time: what the layers of the sandbox's model would take on a GPU.

Each block (attention, MLP, embedding, output layer, optimizer) enqueues a kernel of a fixed duration on the stand-in's
compute stream when the host begins the block's real arithmetic, in the forward and again in the backward pass. Real
arithmetic therefore hides inside the modelled time as long as it is shorter; communication follows the kernel on the
device; a GPU at half speed takes twice as long; and losses don't depend on it at all.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

BACKWARD_FACTOR = 2.0
"""The backward pass of a matrix product is two products."""
EMBEDDING_SHARE, OUTPUT_SHARE = 0.275, 0.225
"""Of a transformer layer. The output layer gets less, since the loss that follows it is real time on the same rank:
so the first and the last pipeline stage take equally long, and a slow GPU shows alike in both."""
OPTIMIZER_SHARE = 0.5
"""The optimizer step of one pipeline stage as a share of a layer's forward pass."""

Enqueue = Callable[[float], None]
"""Enqueue this many seconds of device time (at full speed)."""
Stretch = Callable[[], float]
"""How much longer than an average one the micro-batch takes whose forward pass runs now."""


class _BackwardKernel(torch.autograd.Function):  # type: ignore[misc]  # torch is untyped here
    """The identity; its backward pass runs when the backward pass of the block before it begins."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, enqueue: Enqueue, work_s: float) -> torch.Tensor:
        ctx.enqueue, ctx.work_s = enqueue, work_s
        return tensor.clone()  # no view: the loss changes its input in place

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        ctx.enqueue(ctx.work_s)
        return gradient, None, None


def even() -> float:
    """Every micro-batch takes equally long."""
    return 1.0


def attach_block(block: Any, forward_s: float, enqueue: Enqueue, stretch: Stretch = even) -> None:
    """Give a module modelled device time: forward_s seconds forward, BACKWARD_FACTOR times that backward."""

    def before(_module: Any, _inputs: Any) -> None:
        enqueue(forward_s * stretch())

    def after(_module: Any, _inputs: Any, output: Any) -> Any:
        first = output[0] if isinstance(output, tuple) else output
        if not (isinstance(first, torch.Tensor) and first.requires_grad):
            return output
        marked = _BackwardKernel.apply(first, enqueue, BACKWARD_FACTOR * forward_s * stretch())
        return (marked, *output[1:]) if isinstance(output, tuple) else marked

    block.register_forward_pre_hook(before)
    block.register_forward_hook(after)


def attach_gpt(model: Any, layer_s: float, enqueue: Enqueue, stretch: Stretch = even) -> None:
    """Attach modelled time to the blocks of one pipeline stage of a megatron-core GPTModel."""
    for layer in model.decoder.layers:
        attach_block(layer.self_attention, layer_s / 2, enqueue, stretch)
        attach_block(layer.mlp, layer_s / 2, enqueue, stretch)
    if model.pre_process:
        attach_block(model.embedding, EMBEDDING_SHARE * layer_s, enqueue, stretch)
    if model.post_process:
        attach_block(model.output_layer, OUTPUT_SHARE * layer_s, enqueue, stretch)


@dataclass(frozen=True)
class ModelledIteration:
    """The modelled part of one iteration on its critical path, at full speed."""

    layers_per_stage: int
    pipeline_stages: int
    micro_batches: int
    layer_s: float

    @property
    def optimizer_s(self) -> float:
        """Seconds of the optimizer step."""
        return OPTIMIZER_SHARE * self.layer_s

    @property
    def total_s(self) -> float:
        """Seconds of one iteration: 1F1B runs M + P - 1 slots of one micro-batch forward and backward."""
        edges = EMBEDDING_SHARE + (OUTPUT_SHARE if self.pipeline_stages == 1 else 0.0)
        slot_s = (self.layers_per_stage + edges) * (1 + BACKWARD_FACTOR) * self.layer_s
        return (self.micro_batches + self.pipeline_stages - 1) * slot_s + self.optimizer_s
