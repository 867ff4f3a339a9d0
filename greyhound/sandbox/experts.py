"""A mixture of experts whose experts lie on several ranks: tokens travel by all-to-all (test bed only)."""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

from greyhound.sandbox.model import GptShape
from greyhound.sandbox.plain_model import Mlp


class _Exchange(torch.autograd.Function):  # type: ignore[misc]  # torch is untyped here
    """Rows to the ranks they are for; the gradients take the way back."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, sent: list[int], received: list[int], group: Any) -> torch.Tensor:
        ctx.sent, ctx.received, ctx.group = sent, received, group
        out = rows.new_empty(sum(received), rows.shape[1])
        dist.all_to_all_single(out, rows.contiguous(), received, sent, group=group)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        return _Exchange.apply(gradient, ctx.received, ctx.sent, ctx.group), None, None, None


class ExpertMlp(nn.Module):  # type: ignore[misc]
    """One expert a rank of `group`; each token goes to the one that the router likes best."""

    def __init__(self, shape: GptShape, group: Any) -> None:
        super().__init__()
        self.group = group
        self.router = nn.Linear(shape.hidden, dist.get_world_size(group), bias=False)
        self.expert = Mlp(shape)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Shapes (batch, sequence, hidden) in and out."""
        rows = hidden.flatten(0, 1)
        weight, choice = functional.softmax(self.router(rows), dim=-1).max(dim=-1)
        order = torch.argsort(choice, stable=True)
        sent = torch.bincount(choice, minlength=self.router.out_features)
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent, group=self.group)
        there = _Exchange.apply(rows[order], sent.tolist(), received.tolist(), self.group)
        back = _Exchange.apply(self.expert(there), received.tolist(), sent.tolist(), self.group)
        restored = torch.zeros_like(rows).index_copy(0, order, back)
        return (restored * weight.unsqueeze(-1)).view_as(hidden)


def reduce_gradients(parameters: list[nn.Parameter], group: Any, world_size: int) -> None:
    """Sum the gradients over `group` in one flat buffer and divide by the world's size."""
    gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in parameters]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat, group=group)
    for parameter, part in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
        parameter.grad = part.view_as(parameter) / world_size
