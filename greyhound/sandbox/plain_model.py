"""A small GPT in plain torch, for the trainings that don't use Megatron (test bed only).

Its blocks bear Megatron's names, so that modelled device time attaches to them in the same way.
"""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from greyhound.sandbox.model import GptShape

MakeMlp = Callable[[GptShape], nn.Module]


class Attention(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """Causal self-attention with its layer norm."""

    def __init__(self, shape: GptShape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.norm = nn.LayerNorm(shape.hidden)
        self.qkv = nn.Linear(shape.hidden, 3 * shape.hidden)
        self.out = nn.Linear(shape.hidden, shape.hidden)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Shapes (batch, sequence, hidden) in and out."""
        batch, sequence, width = hidden.shape
        split = self.qkv(self.norm(hidden)).view(batch, sequence, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, sequence, width))


class Mlp(nn.Module):  # type: ignore[misc]
    """The usual two products with their layer norm."""

    def __init__(self, shape: GptShape) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(shape.hidden)
        self.up = nn.Linear(shape.hidden, 4 * shape.hidden)
        self.down = nn.Linear(4 * shape.hidden, shape.hidden)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Shapes (batch, sequence, hidden) in and out."""
        return self.down(functional.gelu(self.up(self.norm(hidden))))


class Layer(nn.Module):  # type: ignore[misc]
    """One transformer layer."""

    def __init__(self, shape: GptShape, make_mlp: MakeMlp) -> None:
        super().__init__()
        self.self_attention = Attention(shape)
        self.mlp = make_mlp(shape)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Shapes (batch, sequence, hidden) in and out."""
        hidden = hidden + self.self_attention(hidden)
        return hidden + self.mlp(hidden)


class Embedding(nn.Module):  # type: ignore[misc]
    """Tokens and positions."""

    def __init__(self, shape: GptShape) -> None:
        super().__init__()
        self.tokens = nn.Embedding(shape.vocabulary, shape.hidden)
        self.positions = nn.Embedding(shape.sequence, shape.hidden)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Integers (batch, sequence) to (batch, sequence, hidden)."""
        return self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))


class Decoder(nn.Module):  # type: ignore[misc]
    """The layers, one after the other."""

    def __init__(self, shape: GptShape, make_mlp: MakeMlp) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(shape, make_mlp) for _ in range(shape.layers))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Shapes (batch, sequence, hidden) in and out."""
        for layer in self.layers:
            hidden = layer(hidden)
        return hidden


class Gpt(nn.Module):  # type: ignore[misc]
    """The whole model; the same weights on every rank that seeds torch alike."""

    pre_process = post_process = True

    def __init__(self, shape: GptShape, make_mlp: MakeMlp = Mlp) -> None:
        super().__init__()
        self.embedding = Embedding(shape)
        self.decoder = Decoder(shape, make_mlp)
        self.output_layer = nn.Linear(shape.hidden, shape.vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """The mean loss of `tokens`, shape (batch, sequence + 1): the last `sequence` columns are the labels."""
        logits = self.output_layer(self.decoder(self.embedding(tokens[:, :-1])))
        return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
