"""Call streams as training frameworks issue them, with the truth beside them.

A call is a tuple (op, communicator, bytes, peer); a stream is a list of iterations, each a list of calls. Sizes follow
Megatron's: TP all-reduces of an activation, point-to-point of the same, one gradient bucket each, small reductions.
"""

from dataclasses import dataclass

import numpy as np

ALL_REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, SEND, RECV = 1, 2, 4, 5, 9, 10
WORLD, TP, DP, PP, MODEL = 11, 12, 13, 14, 15
ACTIVATION_BYTES = 1 << 20


@dataclass(frozen=True)
class Megatron:
    """One rank of a Megatron GPT: stage `stage` of `pp`, `layers` transformer layers on it."""

    tp: int = 2
    dp: int = 2
    pp: int = 2
    stage: int = 0
    layers: int = 2
    micro_batches: int = 4
    buckets: int = 2
    distributed_optimizer: bool = False

    def forward(self):
        calls = []
        if self.pp > 1 and self.stage > 0:
            calls.append((RECV, PP, ACTIVATION_BYTES, self.stage - 1))
        if self.tp > 1:
            first, last = self.stage == 0, self.stage == self.pp - 1
            calls += [(ALL_REDUCE, TP, ACTIVATION_BYTES, -1)] * (2 * self.layers + first)
            calls += [(ALL_REDUCE, TP, 4096, -1)] * (3 * last)
        if self.pp > 1 and self.stage < self.pp - 1:
            calls.append((SEND, PP, ACTIVATION_BYTES, self.stage + 1))
        return calls

    def backward(self):
        calls = []
        if self.pp > 1 and self.stage < self.pp - 1:
            calls.append((RECV, PP, ACTIVATION_BYTES, self.stage + 1))
        if self.tp > 1:
            calls += [(ALL_REDUCE, TP, ACTIVATION_BYTES, -1)] * (2 * self.layers)
        if self.pp > 1 and self.stage > 0:
            calls.append((SEND, PP, ACTIVATION_BYTES, self.stage - 1))
        return calls

    def schedule(self):
        """1F1B: warm-up forwards, alternation, cool-down backwards."""
        warmup = min(self.pp - 1 - self.stage, self.micro_batches)
        calls = self.forward() * warmup
        calls += (self.forward() + self.backward()) * (self.micro_batches - warmup)
        return calls + self.backward() * warmup

    def synchronise(self):
        calls = []
        for bucket in range(self.buckets if self.dp > 1 else 0):
            size = (4 << 20) + 4096 * bucket
            op = REDUCE_SCATTER if self.distributed_optimizer else ALL_REDUCE
            calls.append((op, DP, size, -1))
        if self.pp > 1 and self.stage in (0, self.pp - 1):
            calls.append((ALL_REDUCE, MODEL, 8 << 20, -1))  # tied embedding
        calls += [(ALL_REDUCE, MODEL, 4, -1)] * 2  # overflow and gradient norm
        for bucket in range(self.buckets if self.dp > 1 and self.distributed_optimizer else 0):
            calls.append((ALL_GATHER, DP, (4 << 20) + 4096 * bucket, -1))
        return [*calls, (ALL_REDUCE, WORLD, 8, -1)]  # the loss to be printed

    def iteration(self):
        return self.schedule() + self.synchronise()

    def start(self):
        return [(BROADCAST, DP, 1 << 20, 0)] * 5 + [(ALL_REDUCE, WORLD, 4, -1)] * 3

    def evaluation(self, batches):
        return [*self.forward(), (ALL_REDUCE, DP, 16, -1)] * batches


def fsdp_iteration(layers):
    """Fully sharded: only all-gathers and reduce-scatters, of the root and of equal layers."""
    gather, scatter = (ALL_GATHER, DP, 2 << 20, -1), (REDUCE_SCATTER, DP, 2 << 20, -1)
    root = (ALL_GATHER, DP, 5 << 20, -1), (REDUCE_SCATTER, DP, 5 << 20, -1)
    return [root[0], *[gather] * layers, *[gather, scatter] * layers, root[1]]


def encode(calls, seed=0):
    """Symbols of calls, halves of random numbers: one for the operation, communicator and peer, one for the size."""
    kinds, sizes = {}, {}
    upper = [kinds.setdefault((op, comm, peer), len(kinds)) for op, comm, _, peer in calls]
    lower = [sizes.setdefault(size, len(sizes)) for _, _, size, _ in calls]
    halves = np.random.default_rng(seed).integers(1, 2**32, size=len(kinds) + len(sizes) + 1, dtype=np.uint64)
    return halves[upper] << np.uint64(32) | halves[len(kinds) :][lower]


@dataclass
class Timed:
    """A stream with times: `truth_s[i]` is the time of iteration i, whose last call is at `end_ns[i]`."""

    symbols: np.ndarray
    t_ns: np.ndarray
    truth_s: np.ndarray
    end_ns: np.ndarray


def timed(start, iterations, truth_s, seed=0):
    """Spread each iteration's calls over its time, at the same share of it each time but for 0.1 %."""
    rng = np.random.default_rng(seed)
    calls, times = list(start), list(np.linspace(0, 1e9, len(start), endpoint=False))
    now_ns, ends = 1e9, []
    for body, seconds in zip(iterations, truth_s, strict=True):
        within = (np.arange(len(body)) + 0.5) / len(body) + rng.uniform(0, 0.001)
        times.extend(now_ns + within * seconds * 1e9)
        calls.extend(body)
        ends.append(times[-1])
        now_ns += seconds * 1e9
    return Timed(encode(calls, seed), np.array(times, dtype=np.int64), np.asarray(truth_s), np.array(ends, np.int64))


def shuffle_neighbours(stream, share, seed=0):
    """Swap that share of the calls with a neighbour, as a second thread would."""
    rng = np.random.default_rng(seed)
    symbols = stream.symbols.copy()
    at = np.flatnonzero(rng.random(len(symbols) - 1) < share / 2)
    symbols[at], symbols[at + 1] = symbols[at + 1], symbols[at].copy()
    return Timed(symbols, stream.t_ns, stream.truth_s, stream.end_ns)
