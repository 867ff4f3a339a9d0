"""Call streams recorded from the sandbox's trainings without Megatron, as what they are made of.

Each was read from the rings of `greyhound.sandbox.train_*` with `--loss-every 5 --evaluate-every 12
--checkpoint-every 15` on 4 ranks (2 layers, 4 micro-batches). A call is (op, communicator, bytes, peer), and the sizes
of sends and receives inside a group are 0, as `greyhound.trace.records.symbols` leaves them out.
"""

from dataclasses import dataclass, field

import numpy as np

from greyhound.testdata.workloads import ALL_GATHER, ALL_REDUCE, BROADCAST, RECV, REDUCE_SCATTER, SEND

A, B, C = 21, 22, 23
LOSS_EVERY, EVALUATE_EVERY, CHECKPOINT_EVERY = 5, 12, 15
EVALUATION_BATCHES = 4


def gather(size, comm=A):
    return (ALL_GATHER, comm, size, -1)


def reduce(size, comm=A):
    return (ALL_REDUCE, comm, size, -1)


def checkpoint(world, turn):
    """torch.distributed.checkpoint: plans are gathered and scattered as pickles, whose sizes change now and then."""
    pickle = 9910 + 7 * turn
    return [
        *[(ALL_GATHER, world, 8, -1), (SEND, world, 0, 0), (BROADCAST, world, 8, 0), (RECV, world, 0, 0)],
        *[(RECV, world, 0, 0), (ALL_GATHER, world, 8, -1), (SEND, world, 0, 0), (BROADCAST, world, 8, 0)],
        *[(BROADCAST, world, pickle, 0), (ALL_REDUCE, world, 4, -1)],
    ]


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


def timed(iterations, truth_s, silent=0.0, seed=0):
    """Spread each iteration's calls over its time behind the silent share, at the same places but for 0.1 %."""
    rng = np.random.default_rng(seed)
    calls, times = [], []
    now_ns, ends = 1e9, []
    for body, seconds in zip(iterations, truth_s, strict=True):
        within = silent + (1 - silent) * (np.arange(len(body)) + 0.5) / len(body) + rng.uniform(0, 0.001)
        times.extend(now_ns + within * seconds * 1e9)
        calls.extend(body)
        ends.append(times[-1])
        now_ns += seconds * 1e9
    return Timed(encode(calls, seed), np.array(times, dtype=np.int64), np.asarray(truth_s), np.array(ends, np.int64))


@dataclass
class Recorded:
    """One framework's iteration, its evaluation of one batch, the world's communicator, and how long no call comes."""

    iteration: list
    evaluation: list = field(default_factory=list)
    world: int = A
    silent: float = 0.0

    def bodies(self, count, loss_every=LOSS_EVERY, evaluate_every=EVALUATE_EVERY, checkpoint_every=CHECKPOINT_EVERY):
        """The calls of each iteration, with what came before it."""
        found = []
        for number in range(1, count + 1):
            calls = []
            if number > 1 and (number - 1) % evaluate_every == 0:
                calls += [*self.evaluation * EVALUATION_BATCHES, reduce(4, self.world)]
            if number > 1 and (number - 1) % checkpoint_every == 0:
                calls += checkpoint(self.world, number // checkpoint_every)
            calls += self.iteration
            if (number - 1) % loss_every == 0:
                calls.append(reduce(4, self.world))
            found.append(calls)
        return found

    def stream(self, truth_s, **every):
        return timed(self.bodies(len(truth_s), **every), truth_s, self.silent)


def exchange():
    """One all-to-all among two ranks, inside a group."""
    return [(SEND, B, 0, 0), (RECV, B, 0, 0), (SEND, B, 0, 1), (RECV, B, 0, 1)]


def _fsdp2():
    root, layer = 18560, 49984
    batch = [gather(root), *[gather(layer)] * 4]
    last = [(REDUCE_SCATTER, A, layer, -1)] * 2 + [(REDUCE_SCATTER, A, root, -1)]
    return Recorded([*batch * 4, *last, reduce(112)], [gather(layer)] * 2)


def _hsdp():
    root, layer = 37120, 99968
    batch = [gather(root), *[gather(layer)] * 4]
    pair = [(REDUCE_SCATTER, A, layer, -1), reduce(layer, B)]
    last = [*pair * 2, (REDUCE_SCATTER, A, root, -1), reduce(root, B)]
    return Recorded([*batch * 4, *last, reduce(112)], [gather(layer)] * 2, world=C)


def _ddp():
    """Buckets are reduced while the backward pass goes on; most of the recorded time passes without."""
    return Recorded([reduce(165632), reduce(133376), reduce(133632), reduce(41472)], silent=0.5)


def _experts():
    """Two layers: counts, there and back in each forward pass, back and there in each backward one."""
    forward, backward = exchange() * 6, exchange() * 4
    return Recorded([*(forward + backward) * 4, reduce(209408), reduce(265728, C)], forward)


FRAMEWORKS = {"DDP": _ddp(), "FSDP2": _fsdp2(), "HSDP": _hsdp(), "MoE": _experts()}
