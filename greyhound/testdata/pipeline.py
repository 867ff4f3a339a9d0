"""A training of tensor, data and pipeline parallel ranks as a model: what each rank's calls take, with faults.

Times follow from dependencies alone: segments of own work between calls, calls that begin when the rank is there and
end when all members are and the data has passed. Pipelines run 1F1B with Megatron's combined exchanges, hosts either
run ahead of the GPU or wait for each call. It yields `RankProfile`s as analyzers send them.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from greyhound.localize.model import Communicator, RankProfile, TimedCall
from greyhound.testdata.profiling import Recorder
from greyhound.testdata.workloads import ALL_GATHER, ALL_REDUCE, RECV, REDUCE_SCATTER, SEND

Floats = NDArray[np.float64]

FORWARD_S, BACKWARD = 0.02, 2.0
ACTIVATION_BYTES, GRADIENT_BYTES, LOSS_BYTES = 1 << 20, 1 << 24, 64
TENSOR_S, EXCHANGE_S, GRADIENT_S, LOSS_S = 0.001, 0.003, 0.02, 0.0002
HOST_S = 0.001
OPTIMIZER_S, LOADER_S = 0.01, 0.002


@dataclass(frozen=True)
class Layout:
    """Ranks are numbered tensor first, then data, then pipeline, and fill nodes in that order."""

    tp: int = 1
    dp: int = 1
    pp: int = 1
    per_node: int = 2
    micro_batches: int = 4
    layers: int = 1
    sharded: bool = False
    """FSDP over all ranks: layers are gathered before their use, gradients are scattered after it."""

    @property
    def ranks(self) -> int:
        """All of them."""
        return self.tp * self.dp * self.pp

    def rank(self, tp: int, dp: int, pp: int) -> int:
        """The number of the rank in these places."""
        return tp + self.tp * (dp + self.dp * pp)


@dataclass(frozen=True)
class Conditions:
    """How the ranks fare. By rank: `gpu` speed (1 is healthy), `host` factor on host times, `loader_s` seconds more
    between iterations. `link`: factor on transfers by directed pair of ranks. `clock_s`: error of a node's clock."""

    gpu: Mapping[int, float] = field(default_factory=dict)
    host: Mapping[int, float] = field(default_factory=dict)
    loader_s: Mapping[int, float] = field(default_factory=dict)
    link: Mapping[tuple[int, int], float] = field(default_factory=dict)
    clock_s: Mapping[int, float] = field(default_factory=dict)
    checkpoint_s: float = 0.0
    checkpoint_every: int = 1
    ragged: float = 0.0
    """Relative spread of a micro-batch's length, alike in all stages of a replica."""
    jitter: float = 0.04
    """Relative spread of a segment's time, and of a whole iteration of a rank."""
    run_ahead: bool = True
    overlap: bool = False
    timed: bool = True


class _Training:
    """State of the ranks between calls: when each is done with its last one, and where its host is."""

    def __init__(self, layout: Layout, conditions: Conditions, rng: np.random.Generator) -> None:
        self.layout, self.conditions, self.rng = layout, conditions, rng
        count = layout.ranks
        self.free = np.zeros(count)
        self.host = np.zeros(count)
        self.speed = np.array([conditions.gpu.get(rank, 1.0) for rank in range(count)])
        self.slow_host = np.array([conditions.host.get(rank, 1.0) for rank in range(count)])
        self.loader_s = np.array([LOADER_S + conditions.loader_s.get(rank, 0.0) for rank in range(count)])
        self.mood = np.ones(count)
        self.recorder = Recorder(count)

    def work(self, ranks: NDArray[np.int64], seconds: float) -> tuple[Floats, Floats]:
        """A segment of own work, then a call: when the host issues it, and when the GPU reaches it."""
        noise = np.exp(self.rng.normal(0.0, self.conditions.jitter, len(ranks)))
        device_s = seconds * noise * self.mood[ranks] / self.speed[ranks]
        host_s = HOST_S * self.slow_host[ranks] * np.exp(self.rng.normal(0.0, 0.2, len(ranks)))
        issued_from = self.host[ranks] if self.conditions.run_ahead else np.maximum(self.free[ranks], self.host[ranks])
        entry = issued_from + host_s
        self.host[ranks] = entry
        return entry, np.maximum(entry, self.free[ranks] + device_s)

    def collective(
        self, comm: int, op: int, size: int, ranks: NDArray[np.int64], work_s: float, transfer_s: float
    ) -> None:
        """Own work of all members, then their collective."""
        entry, start = self.work(ranks, work_s)
        self.join(comm, op, size, ranks, entry, start, transfer_s)

    def join(
        self, comm: int, op: int, size: int, ranks: NDArray[np.int64], entry: Floats, start: Floats, transfer_s: float
    ) -> None:
        """A collective whose members come at `start`."""
        slowest = max((self.conditions.link.get((a, b), 1.0) for a, b in _ring(ranks.tolist())), default=1.0)
        end = start.max() + transfer_s * slowest * np.exp(self.rng.normal(0.0, self.conditions.jitter))
        self.recorder.collective(comm, op, size, ranks, entry, start, end)
        self.free[ranks] = np.maximum(self.free[ranks], end)


def _ring(ranks: list[int]) -> Iterator[tuple[int, int]]:
    return zip(ranks, ranks[1:] + ranks[:1], strict=True) if len(ranks) > 1 else iter(())


def schedule(stage: int, stages: int, micro_batches: int) -> list[tuple[str, object]]:
    """1F1B of one stage: ("F" or "B", micro-batch) and ("x", exchanges of one bracket: (way, neighbour))."""
    up, down = stage - 1, stage + 1

    def x(*parts: tuple[str, int]) -> list[tuple[str, object]]:
        kept = tuple(part for part in parts if 0 <= part[1] < stages)
        return [("x", kept)] if kept else []

    warm = min(stages - stage - 1, micro_batches)
    steps: list[tuple[str, object]] = []
    for index in range(warm):
        steps += [*x(("recv", up)), ("F", index), *x(("send", down))]
    steady = micro_batches - warm
    if steady:
        steps += x(("recv", up))
    for index in range(steady):
        steps += [("F", warm + index), *x(("send", down), ("recv", down)), ("B", index)]
        steps += x(("send", up)) if index == steady - 1 else x(("send", up), ("recv", up))
    for index in range(steady, micro_batches):
        steps += [*x(("recv", down)), ("B", index), *x(("send", up))]
    return steps


class _Channel:
    """Transfers in one direction between two ranks, first in, first out."""

    def __init__(self) -> None:
        self.sent: list[float] = []
        self.awaited: list[float] = []
        self.ends: list[float] = []


class _Pipelines:
    """One iteration of all pipelines: runs each stage as far as its neighbours let it."""

    def __init__(self, training: _Training, lengths: Floats) -> None:
        self.t, self.lengths = training, lengths
        self.channels: dict[tuple[int, int], _Channel] = defaultdict(_Channel)
        layout = training.layout
        self.units = [(dp, pp) for dp in range(layout.dp) for pp in range(layout.pp)]
        self.programs = {unit: schedule(unit[1], layout.pp, layout.micro_batches) for unit in self.units}
        self.at = dict.fromkeys(self.units, 0)
        self.posted: dict[tuple[int, int], list[tuple[_Channel, int]] | None] = dict.fromkeys(self.units)
        self.issued: dict[tuple[int, int], tuple[Floats, Floats]] = {}
        self.buckets: dict[int, tuple[float, float]] = {}

    def ranks(self, unit: tuple[int, int]) -> NDArray[np.int64]:
        layout = self.t.layout
        return np.array([layout.rank(tp, *unit) for tp in range(layout.tp)])

    def run(self) -> None:
        """All stages to the end of the iteration's last backward pass."""
        moving = True
        while moving:
            moving = False
            for unit in self.units:
                while self.at[unit] < len(self.programs[unit]) and self._step(unit):
                    moving = True
        assert all(self.at[unit] == len(self.programs[unit]) for unit in self.units), "the schedule hangs"

    def _step(self, unit: tuple[int, int]) -> bool:
        what, argument = self.programs[unit][self.at[unit]]
        if what == "x":
            if self.posted[unit] is None:
                self._post(unit, argument)  # type: ignore[arg-type]
            if not self._finish(unit, argument):  # type: ignore[arg-type]
                return False
        else:
            self._compute(unit, what, int(argument))  # type: ignore[call-overload]
        self.at[unit] += 1
        return True

    def _compute(self, unit: tuple[int, int], what: str, micro_batch: int) -> None:
        t, ranks = self.t, self.ranks(unit)
        seconds = FORWARD_S * (BACKWARD if what == "B" else 1.0) * self.lengths[unit[0], micro_batch]
        calls = 2 * t.layout.layers
        self.pending = getattr(self, "pending", {})
        if t.layout.tp == 1:
            self.pending[unit] = self.pending.get(unit, 0.0) + seconds
            return
        for _ in range(calls):
            t.collective(1000 + unit[0] * 100 + unit[1], ALL_REDUCE, ACTIVATION_BYTES, ranks, seconds / calls, TENSOR_S)
        if t.conditions.overlap and what == "B" and micro_batch == t.layout.micro_batches - 1:
            for rank in ranks.tolist():
                self.buckets[rank] = (float(t.host[rank]), float(t.free[rank]))

    def take_pending(self, unit: tuple[int, int]) -> float:
        """Own work that no call has followed yet."""
        return float(getattr(self, "pending", {}).pop(unit, 0.0))

    def _post(self, unit: tuple[int, int], parts: tuple[tuple[str, int], ...]) -> None:
        ranks = self.ranks(unit)
        entry, start = self.t.work(ranks, self.take_pending(unit))
        self.issued[unit] = entry, start
        posted = []
        for way, neighbour in parts:
            for rank, other, at in zip(
                ranks.tolist(), self.ranks((unit[0], neighbour)).tolist(), start.tolist(), strict=True
            ):
                key = (rank, other) if way == "send" else (other, rank)
                channel = self.channels[key]
                mine, theirs = (channel.sent, channel.awaited) if way == "send" else (channel.awaited, channel.sent)
                mine.append(at)
                posted.append((channel, len(mine) - 1))
                if len(theirs) >= len(mine):
                    factor = self.t.conditions.link.get(key, 1.0)
                    noise = np.exp(self.t.rng.normal(0.0, self.t.conditions.jitter))
                    channel.ends.append(max(at, theirs[len(mine) - 1]) + EXCHANGE_S * factor * noise)
        self.posted[unit] = posted

    def _finish(self, unit: tuple[int, int], parts: tuple[tuple[str, int], ...]) -> bool:
        posted = self.posted[unit]
        assert posted is not None
        if any(len(channel.ends) <= index for channel, index in posted):
            return False
        ranks = self.ranks(unit)
        entry, start = self.issued[unit]
        ends = np.array([channel.ends[index] for channel, index in posted]).reshape(len(parts), len(ranks)).max(axis=0)
        for row, rank in enumerate(ranks.tolist()):
            for way, neighbour in parts:
                op = SEND if way == "send" else RECV
                comm = 2000 + unit[0] * 100 + rank % self.t.layout.tp
                self.t.recorder.transfer(comm, op, ACTIVATION_BYTES, rank, neighbour, entry[row], start[row], ends[row])
        self.t.free[ranks] = ends
        if not self.t.conditions.run_ahead:
            self.t.host[ranks] = ends
        self.posted[unit] = None
        return True


def _gradients(training: _Training, pipelines: _Pipelines) -> None:
    layout = training.layout
    for pp in range(layout.pp):
        for tp in range(layout.tp):
            ranks = np.array([layout.rank(tp, dp, pp) for dp in range(layout.dp)])
            left = max(pipelines.take_pending((dp, pp)) for dp in range(layout.dp)) if tp == 0 else 0.0
            if layout.dp > 1:
                comm = 3000 + pp * 100 + tp
                if pipelines.buckets:
                    entry, start = np.array([pipelines.buckets[rank] for rank in ranks.tolist()]).T
                    training.join(comm, ALL_REDUCE, GRADIENT_BYTES, ranks, entry, start, GRADIENT_S)
                training.collective(comm, ALL_REDUCE, GRADIENT_BYTES, ranks, left, GRADIENT_S)


def _sharded(training: _Training, lengths: Floats) -> None:
    """Forward and backward of FSDP: one communicator."""
    layout, ranks = training.layout, np.arange(training.layout.ranks)
    layers = 4 * layout.layers
    for micro_batch in range(layout.micro_batches):
        seconds = FORWARD_S * float(lengths[:, micro_batch].mean()) / layers
        for layer in range(layers):
            training.collective(3000, ALL_GATHER, GRADIENT_BYTES >> (layer == 0), ranks, seconds, TENSOR_S)
        for layer in reversed(range(layers)):
            size = GRADIENT_BYTES >> (layer == 0)
            training.collective(3000, ALL_GATHER, size, ranks, seconds, TENSOR_S)
            training.collective(3000, REDUCE_SCATTER, size, ranks, seconds, TENSOR_S)


def _iteration(training: _Training, number: int) -> None:
    layout, conditions, rng = training.layout, training.conditions, training.rng
    everybody = np.arange(layout.ranks)
    training.mood = np.exp(rng.normal(0.0, conditions.jitter / 2, layout.ranks))
    loader_s = training.loader_s * np.exp(rng.normal(0.0, 0.2, layout.ranks))
    if conditions.checkpoint_s and number % conditions.checkpoint_every == 0:
        loader_s = loader_s + conditions.checkpoint_s * np.exp(rng.normal(0.0, 0.05, layout.ranks))
    training.host = np.maximum(training.host, training.free) + loader_s
    lengths = np.exp(rng.normal(0.0, conditions.ragged, (layout.dp, layout.micro_batches)))
    if layout.sharded:
        _sharded(training, lengths)
    else:
        pipelines = _Pipelines(training, lengths)
        pipelines.run()
        _gradients(training, pipelines)
    training.collective(9000, ALL_REDUCE, LOSS_BYTES, everybody, OPTIMIZER_S, LOSS_S)
    training.host = np.maximum(training.host, training.free)
    training.recorder.iteration_ends(training.free)


def _communicators(layout: Layout, rank: int) -> tuple[Communicator, ...]:
    tp, dp, pp = rank % layout.tp, rank // layout.tp % layout.dp, rank // (layout.tp * layout.dp)
    found = [Communicator(9000, layout.ranks, rank)]
    if layout.sharded:
        return (*found, Communicator(3000, layout.ranks, rank))
    if layout.tp > 1:
        found.append(Communicator(1000 + dp * 100 + pp, layout.tp, tp))
    if layout.dp > 1:
        found.append(Communicator(3000 + pp * 100 + tp, layout.dp, dp))
    if layout.pp > 1:
        found.append(Communicator(2000 + dp * 100 + tp, layout.pp, pp))
    return tuple(found)


def _work(layout: Layout, rank: int) -> str:
    """As the fingerprint has it: stages in the middle do equal calls, and with two stages both do."""
    stage = rank // (layout.tp * layout.dp)
    inner = layout.pp > 2 and 0 < stage < layout.pp - 1
    return f"inner-{layout.tp}" if inner else f"edge-{layout.tp}"


def profiles(
    layout: Layout, conditions: Conditions, rng: np.random.Generator, iterations: int = 6
) -> list[RankProfile]:
    """What analyzers send about so many iterations (after two that aren't shown)."""
    training = _Training(layout, conditions, rng)
    for number in range(iterations + 2):
        _iteration(training, number)
    return [_profile(training, rank, iterations) for rank in range(layout.ranks)]


def _profile(training: _Training, rank: int, iterations: int) -> RankProfile:
    layout, conditions = training.layout, training.conditions
    node = rank // layout.per_node
    calls, times = training.recorder.of(rank, iterations, conditions.clock_s.get(node, 0.0), conditions.timed)
    return RankProfile(
        node,
        f"ring.{1000 + rank}",
        rank,
        f"0000:{rank % layout.per_node:02x}:00.0",
        _work(layout, rank),
        conditions.timed,
        times.iteration_s,
        times.own_s,
        times.host_s,
        times.boundary_s,
        _communicators(layout, rank),
        tuple(TimedCall(*call) for call in calls),
    )
