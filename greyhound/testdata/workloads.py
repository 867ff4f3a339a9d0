"""The NCCL calls of one training iteration on one rank, as the frameworks issue them.

Sizes are those of a small model; what matters is which calls are equal, which return, and in which order. The order
follows Megatron-core's schedules (1F1B, interleaved), PyTorch's DDP (one all-reduce a bucket) and FSDP (all-gathers
before, reduce-scatters after each layer).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from greyhound.trace import layout

CALL_DTYPE = np.dtype([("op", "u1"), ("comm", "<u8"), ("bytes", "<u8"), ("peer", "<i4"), ("grouped", "?")])
Calls = NDArray[np.void]

ALL_REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, SEND, RECV = (
    int(getattr(layout, f"GH_OP_{name}"))
    for name in ("ALL_REDUCE", "BROADCAST", "ALL_GATHER", "REDUCE_SCATTER", "ALL_TO_ALL", "SEND", "RECV")
)
WORLD, TP, DP, PP, MODEL, EP, EDP, REPLICA = 11, 12, 13, 14, 15, 16, 17, 18  # stand for the communicators' hashes
ACTIVATION_BYTES = 1 << 20
_MEAN_TOKENS = 4096


class Call(NamedTuple):
    """One call: the operation, its communicator, its size, the other rank of a transfer, and if it is in a group."""

    op: int
    comm: int
    bytes: int
    peer: int = -1
    grouped: bool = False


def table(calls: Iterable[Call]) -> Calls:
    """Calls as an array of CALL_DTYPE."""
    return np.array([tuple(call) for call in calls], dtype=CALL_DTYPE)


class Workload(Protocol):
    """What one rank of a training does."""

    @property
    def ragged(self) -> bool:
        """Whether sizes differ from iteration to iteration."""

    def start(self) -> Calls:
        """The calls before the first iteration."""

    def iteration(self, rng: np.random.Generator) -> Calls:
        """The calls of an iteration; ``rng`` draws the ragged sizes."""

    def evaluation(self, batches: int, rng: np.random.Generator) -> Calls:
        """The calls of an evaluation: forward only."""


@dataclass(frozen=True)
class Megatron:
    """One rank of a Megatron model: stage ``stage`` of ``pp``, ``layers`` transformer layers in each of its chunks.

    ``chunks`` > 1 is the interleaved schedule. ``ep`` > 1 adds experts: two all-to-alls a layer and direction, whose
    sizes differ from call to call (``ragged``), as one operation or, ``grouped``, as sends and receives in a group.
    ``variable_length`` lets the activations' sizes differ between micro-batches as well.
    """

    tp: int = 2
    dp: int = 2
    pp: int = 2
    stage: int = 0
    layers: int = 2
    micro_batches: int = 4
    buckets: int = 2
    distributed_optimizer: bool = False
    chunks: int = 1
    ep: int = 1
    grouped: bool = False
    variable_length: bool = False
    loss_per_micro_batch: bool = False

    @property
    def ragged(self) -> bool:
        """Whether sizes differ from iteration to iteration."""
        return self.ep > 1 or self.variable_length

    def start(self) -> Calls:
        """Parameters are broadcast, clocks compared."""
        return table([Call(BROADCAST, DP, 1 << 20, 0)] * 5 + [Call(ALL_REDUCE, WORLD, 4)] * 3)

    def iteration(self, rng: np.random.Generator) -> Calls:
        """All micro-batches, then the gradients and what is printed."""
        sizes = [self._activation_bytes(rng) for _ in range(self.micro_batches)]
        return table(self._schedule(sizes, rng) + self._synchronise())

    def evaluation(self, batches: int, rng: np.random.Generator) -> Calls:
        """Forward only, and the loss of each batch."""
        calls: list[Call] = []
        for _ in range(batches):
            for chunk in range(self.chunks):
                calls += self._forward(chunk, self._activation_bytes(rng), rng)
            calls.append(Call(ALL_REDUCE, DP, 16))
        return table(calls)

    def _activation_bytes(self, rng: np.random.Generator) -> int:
        return int(rng.integers(1, 64)) * 16_384 if self.variable_length else ACTIVATION_BYTES

    def _schedule(self, sizes: list[int], rng: np.random.Generator) -> list[Call]:
        """Warm-up forwards, one forward and one backward in turns, cool-down backwards (Megatron-core's schedules)."""
        total = self.micro_batches * self.chunks
        behind = self.pp - 1 - self.stage
        warmup = min(behind if self.chunks == 1 else 2 * behind + (self.chunks - 1) * self.pp, total)
        calls: list[Call] = []
        for number in range(total + warmup):
            if number < total:
                calls += self._forward(self._chunk(number), sizes[self._micro_batch(number)], rng)
            if number >= warmup:
                number -= warmup
                chunk = self.chunks - 1 - self._chunk(number)
                calls += self._backward(chunk, sizes[self._micro_batch(number)], rng)
        return calls

    def _chunk(self, number: int) -> int:
        """Of the ``number``-th step of the interleaved schedule."""
        return number % (self.pp * self.chunks) // self.pp

    def _micro_batch(self, number: int) -> int:
        round_, place = divmod(number, self.pp * self.chunks)
        return min(round_ * self.pp + place % self.pp, self.micro_batches - 1) if self.chunks > 1 else number

    def _edges(self, chunk: int) -> tuple[bool, bool]:
        """Whether this chunk is the model's first, and its last."""
        return self.stage == 0 and chunk == 0, self.stage == self.pp - 1 and chunk == self.chunks - 1

    def _forward(self, chunk: int, size: int, rng: np.random.Generator) -> list[Call]:
        first, last = self._edges(chunk)
        calls: list[Call] = []
        if self.pp > 1 and not first:
            calls.append(Call(RECV, PP, size, (self.stage - 1) % self.pp, self.grouped))
        if self.tp > 1 and first:
            calls.append(Call(ALL_REDUCE, TP, size))
        for _ in range(self.layers):
            calls += self._layer(size, rng)
        if self.tp > 1 and last:
            calls += [Call(ALL_REDUCE, TP, max(size // 256, 4))] * 3
        if self.loss_per_micro_batch and last:
            calls.append(Call(ALL_REDUCE, DP, 8))
        if self.pp > 1 and not last:
            calls.append(Call(SEND, PP, size, (self.stage + 1) % self.pp, self.grouped))
        return calls

    def _backward(self, chunk: int, size: int, rng: np.random.Generator) -> list[Call]:
        first, last = self._edges(chunk)
        calls: list[Call] = []
        if self.pp > 1 and not last:
            calls.append(Call(RECV, PP, size, (self.stage + 1) % self.pp, self.grouped))
        for _ in range(self.layers):
            calls += self._layer(size, rng)
        if self.pp > 1 and not first:
            calls.append(Call(SEND, PP, size, (self.stage - 1) % self.pp, self.grouped))
        return calls

    def _layer(self, size: int, rng: np.random.Generator) -> list[Call]:
        """Attention and MLP in one direction: a reduction each, or, with experts, tokens out and back."""
        reduction = [Call(ALL_REDUCE, TP, size)] if self.tp > 1 else []
        if self.ep == 1:
            return reduction * 2
        return reduction + self._tokens(rng) + self._tokens(rng)

    def _tokens(self, rng: np.random.Generator) -> list[Call]:
        if not self.grouped:
            return [Call(ALL_TO_ALL, EP, int(rng.poisson(_MEAN_TOKENS)) * 2048)]
        calls = []
        for peer in range(self.ep):
            calls.append(Call(SEND, EP, int(rng.poisson(_MEAN_TOKENS)) * 256, peer, True))
            calls.append(Call(RECV, EP, int(rng.poisson(_MEAN_TOKENS)) * 256, peer, True))
        return calls

    def _synchronise(self) -> list[Call]:
        calls: list[Call] = []
        sizes = [(4 << 20) + 4096 * bucket for bucket in range(self.buckets if self.dp > 1 else 0)]
        op = REDUCE_SCATTER if self.distributed_optimizer else ALL_REDUCE
        calls += [Call(op, DP, size) for size in sizes]
        if self.ep > 1 and self.dp > 1:
            calls += [Call(op, EDP, size // 2) for size in sizes]
        if self.pp > 1 and self.stage in (0, self.pp - 1):
            calls.append(Call(ALL_REDUCE, MODEL, 8 << 20))  # tied embedding
        calls += [Call(ALL_REDUCE, MODEL, 4)] * 2  # overflow and gradient norm
        if self.distributed_optimizer:
            calls += [Call(ALL_GATHER, DP, size) for size in sizes]
        return [*calls, Call(ALL_REDUCE, WORLD, 8)]  # the loss to be printed


@dataclass(frozen=True)
class FSDP:
    """Fully sharded: only all-gathers and reduce-scatters, many of one size.

    ``layer_kinds``: so many different layer sizes take turns. ``micro_batches`` > 1 accumulates gradients, reduced
    only at the last if ``no_sync``. ``replicas`` > 1 is HSDP: each reduce-scatter is followed by an all-reduce between
    replicas. ``clip`` adds the norm of the gradients.
    """

    layers: int = 24
    micro_batches: int = 1
    no_sync: bool = True
    replicas: int = 1
    clip: bool = False
    layer_kinds: int = 1
    root: bool = True
    ragged: bool = field(default=False, init=False)

    def start(self) -> Calls:
        """The module's states are made the same on all ranks."""
        return table([Call(BROADCAST, DP, 1 << 20, 0)] * 7)

    def _bytes(self, layer: int) -> int:
        return (2 << 20) + 8192 * (layer % self.layer_kinds)

    def _forward(self) -> list[Call]:
        gathers = [Call(ALL_GATHER, DP, self._bytes(layer)) for layer in range(self.layers)]
        return ([Call(ALL_GATHER, DP, 5 << 20)] if self.root else []) + gathers

    def _reduce(self, size: int) -> list[Call]:
        scatter = [Call(REDUCE_SCATTER, DP, size)]
        return [*scatter, Call(ALL_REDUCE, REPLICA, size)] if self.replicas > 1 else scatter

    def _backward(self, reduces: bool) -> list[Call]:
        calls: list[Call] = []
        for layer in reversed(range(self.layers)):
            calls.append(Call(ALL_GATHER, DP, self._bytes(layer)))
            calls += self._reduce(self._bytes(layer)) if reduces else []
        return calls + (self._reduce(5 << 20) if reduces and self.root else [])

    def iteration(self, rng: np.random.Generator) -> Calls:
        """Forward and backward of each micro-batch."""
        calls: list[Call] = []
        for number in range(self.micro_batches):
            reduces = not self.no_sync or number == self.micro_batches - 1
            calls += self._forward() + self._backward(reduces)
        return table(calls + ([Call(ALL_REDUCE, DP, 4)] if self.clip else []))

    def evaluation(self, batches: int, rng: np.random.Generator) -> Calls:
        """Forward only, and the loss."""
        return table([*self._forward(), Call(ALL_REDUCE, DP, 16)] * batches)


@dataclass(frozen=True)
class DDP:
    """Replicas: one all-reduce a bucket of gradients, ``equal`` of them of one size; nothing in between.

    ``logged``: the loss is reduced as well.
    """

    buckets: int = 10
    equal: int = 0
    logged: bool = False
    ragged: bool = field(default=False, init=False)

    def start(self) -> Calls:
        """Shapes are compared, parameters broadcast."""
        return table([Call(ALL_GATHER, DP, 64)] + [Call(BROADCAST, DP, 25 << 20, 0)] * 8)

    def iteration(self, rng: np.random.Generator) -> Calls:
        """The buckets in the order in which their gradients are ready."""
        sizes = [(25 << 20) + 4096 * max(bucket - self.equal + 1, 0) for bucket in range(self.buckets)]
        calls = [Call(ALL_REDUCE, DP, size) for size in sizes]
        return table(calls + ([Call(ALL_REDUCE, WORLD, 4)] if self.logged else []))

    def evaluation(self, batches: int, rng: np.random.Generator) -> Calls:
        """The loss of each batch."""
        return table([Call(ALL_REDUCE, DP, 16)] * batches)


@dataclass(frozen=True)
class Plain:
    """``calls`` calls an iteration of ``kinds`` different sizes in random but fixed order; 0: all differ."""

    calls: int = 10
    kinds: int = 0
    seed: int = 0
    ragged: bool = field(default=False, init=False)

    def start(self) -> Calls:
        """Nothing."""
        return np.empty(0, dtype=CALL_DTYPE)

    def iteration(self, rng: np.random.Generator) -> Calls:
        """All-reduces on one communicator."""
        body = np.zeros(self.calls, dtype=CALL_DTYPE)
        body["op"], body["comm"], body["peer"] = ALL_REDUCE, DP, -1
        fixed = np.random.default_rng(self.seed)
        body["bytes"] = fixed.integers(0, self.kinds, self.calls) if self.kinds else np.arange(self.calls)
        body["bytes"] = 1024 * (body["bytes"] + 1)
        return body

    def evaluation(self, batches: int, rng: np.random.Generator) -> Calls:
        """A few calls of another size."""
        return table([Call(ALL_REDUCE, DP, 16)] * batches)
