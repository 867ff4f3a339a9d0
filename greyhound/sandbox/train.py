"""Train a small GPT with megatron-core on the stand-in for NCCL and CUDA (test bed only).

The losses are real: every layer's arithmetic runs on the CPU. The *time* is mostly modelled: besides its arithmetic
each attention, MLP, embedding, output layer and optimizer step enqueues a kernel of a fixed duration on the stand-in's
stream (--layer-ms a layer, micro-batch and forward pass, twice that backward), which takes longer on a GPU that
`greyhound inject gpu` made slow. Communication, its order and its volume are Megatron's own.

Starts under srun (one task a GPU), srun torchrun (one task a node), torchrun, or `greyhound launch`.
"""

import argparse
import json
import os
import statistics
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from greyhound.sandbox import ranks, torch_backend

if TYPE_CHECKING:
    from greyhound.sandbox.device_time import ModelledIteration
    from greyhound.sandbox.model import GptShape, Parallelism, Training

RENDEZVOUS_TIMEOUT_S = 600
WARM_UP_ITERATIONS = 3


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} isn't at least 1")
    return number


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m greyhound.sandbox.train",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--tp", type=_positive, default=1, help="tensor-parallel size (default 1)")
    parser.add_argument("--pp", type=_positive, default=1, help="pipeline-parallel size (default 1)")
    parser.add_argument("--dp", type=_positive, help="data-parallel size (default: the rest of the ranks)")
    parser.add_argument("--micro-batches", type=_positive, default=12, help="per iteration and replica (default 12)")
    parser.add_argument("--steps", type=_positive, default=60, help="iterations (default 60)")
    parser.add_argument("--layers", type=_positive, help="transformer layers (default: one per pipeline stage)")
    parser.add_argument("--seed", type=int, default=1234, help="of weights and data (default 1234)")
    parser.add_argument("--layer-ms", type=float, default=20.0, help="modelled forward time of a layer (default 20)")
    parser.add_argument("--distributed-optimizer", action="store_true", help="shard the optimizer's state over DP")
    parser.add_argument("--overlap", action="store_true", help="reduce gradients while the backward pass runs")
    parser.add_argument("--json-log", type=Path, metavar="FILE", help="one JSON object an iteration, appended")
    parser.add_argument(
        "--backend", choices=("greyhound", "gloo"), default="greyhound", help="gloo: without the stand-in and its time"
    )
    options = parser.parse_args(arguments)
    options.layers = options.layers or options.pp
    if options.layers % options.pp:
        parser.error(f"--layers {options.layers} can't be divided over --pp {options.pp} stages")
    return options


def check_world(options: argparse.Namespace, world_size: int) -> int:
    """The data-parallel size.

    Raises:
        ValueError: the ranks can't be laid out as asked.
    """
    inner = options.tp * options.pp
    asked = f"--tp {options.tp} --pp {options.pp}"
    if options.dp and options.dp * inner != world_size:
        raise ValueError(f"{asked} --dp {options.dp} needs {inner * options.dp} ranks, not {world_size}")
    if world_size % inner:
        raise ValueError(f"{asked} needs a multiple of {inner} ranks, not {world_size}")
    return int(world_size // inner)


class Device:
    """This process's GPU: the stand-in's stream, or nothing with gloo."""

    def __init__(self, native: Any, layer_s: float) -> None:
        self._native = native
        self.layer_s = layer_s if native is not None else 0.0

    def enqueue(self, work_s: float) -> None:
        """Enqueue modelled device time that begins now or when the stream is free."""
        if self._native is not None and work_s > 0:
            self._native.device_time(work_s)

    def synchronize(self) -> None:
        """Wait until all modelled device time has passed."""
        if self._native is not None:
            self._native.synchronize()


def start_world(me: ranks.RankEnvironment, options: argparse.Namespace) -> Device:
    """Choose the GPU, register the backend and initialise the world's process group."""
    if options.backend == "greyhound":
        torch_backend.preload_runtime()
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    native = None
    if options.backend == "greyhound":
        native = torch_backend.register()
        torch_backend.choose_device(native, me.local_rank)
    timeout = timedelta(seconds=RENDEZVOUS_TIMEOUT_S)
    # torchrun's agent may keep the store already; then every rank is a client of it.
    agent_store = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store = dist.TCPStore(
        me.master_address, me.master_port, me.world_size, is_master=me.rank == 0 and not agent_store, timeout=timeout
    )
    store = dist.PrefixStore(f"train/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    dist.init_process_group(options.backend, store=store, rank=me.rank, world_size=me.world_size, timeout=timeout)
    return Device(native, options.layer_ms / 1e3)


def mean_loss(losses: list[Any]) -> float:
    """Mean over micro-batches and data-parallel replicas, on the last pipeline stage; NaN on the others."""
    import torch
    import torch.distributed as dist
    from megatron.core import parallel_state

    if not losses:
        return float("nan")
    mean = torch.stack(losses).mean()
    dist.all_reduce(mean, group=parallel_state.get_data_parallel_group())
    return float(mean) / int(parallel_state.get_data_parallel_world_size())


def train_step(
    training: "Training", shape: "GptShape", options: argparse.Namespace, iteration: int, device: Device
) -> float:
    """One iteration (numbered from 1); returns the loss, NaN where this rank hasn't the last pipeline stage."""
    from megatron.core import parallel_state
    from megatron.core.pipeline_parallel import get_forward_backward_func

    from greyhound.sandbox import device_time, model

    replicas = parallel_state.get_data_parallel_world_size()
    place = (iteration - 1) * replicas + parallel_state.get_data_parallel_rank()
    training.model.zero_grad_buffer()
    training.optimizer.zero_grad()
    losses = get_forward_backward_func()(
        forward_step_func=model.forward_step,
        data_iterator=model.batches(shape, options.seed, place * options.micro_batches, options.micro_batches),
        model=[training.model],
        num_microbatches=options.micro_batches,
        seq_length=shape.sequence,
        micro_batch_size=shape.micro_batch,
        forward_only=False,
    )
    device.enqueue(device_time.OPTIMIZER_SHARE * device.layer_s)
    training.optimizer.step()
    loss = mean_loss(losses)
    device.synchronize()
    return loss


@dataclass
class Report:
    """What the printing rank says: a line on the terminal and a JSON line for machines."""

    steps: int
    speaks: bool
    log: TextIO | None = None

    def say(self, text: str) -> None:
        """Print on the one rank that speaks."""
        if self.speaks:
            print(text, flush=True)

    def iteration(self, number: int, loss: float, time_s: float) -> None:
        """One iteration: its loss in full precision and its time."""
        self.say(
            f"iteration {number}/{self.steps} loss {loss:.6f} time_s {time_s:.6f} "
            f"loss_hex {loss.hex()} unix_s {time.time():.3f}"
        )
        if self.speaks and self.log is not None:
            record = {"iteration": number, "loss": loss, "loss_hex": loss.hex(), "time_s": time_s}
            self.log.write(json.dumps({**record, "end_ns": time.monotonic_ns()}) + "\n")
            self.log.flush()


def summary(times_s: list[float], modelled: "ModelledIteration", device: Device) -> str:
    """The last line: median and spread of the iteration time, and the modelled share of it at full speed."""
    settled = times_s[WARM_UP_ITERATIONS:] or times_s
    median = statistics.median(settled)
    spread = statistics.pstdev(settled) / median
    share = modelled.total_s / median if device.layer_s else 0.0
    return f"done: median iteration {median:.4f} s, standard deviation {spread:.1%}, modelled at full speed {share:.1%}"


def announce(options: argparse.Namespace, replicas: int, modelled_s: float) -> str:
    """The first line: the layout, and which part of the time is modelled."""
    return (
        f"GPT of {options.layers} layers: TP{options.tp} DP{replicas} PP{options.pp}, {options.micro_batches} "
        f"micro-batches; modelled device time {modelled_s * 1e3:.0f} ms of an iteration (attention, MLP, embedding, "
        "output layer, optimizer; communication and losses are real)"
    )


def run(options: argparse.Namespace, me: ranks.RankEnvironment, log: TextIO | None) -> None:
    """Build the model and train it; every rank runs this."""
    device = start_world(me, options)
    from greyhound.sandbox import device_time, model

    parallelism: Parallelism = model.Parallelism(options.tp, options.pp, options.distributed_optimizer, options.overlap)
    model.initialize_parallel(parallelism, options.seed)
    shape = model.GptShape(options.layers)
    training = model.build(shape, parallelism)
    device_time.attach_gpt(training.model.module, device.layer_s, device.enqueue)
    modelled = device_time.ModelledIteration(
        options.layers // options.pp, options.pp, options.micro_batches, device.layer_s
    )
    # The last rank has the last pipeline stage, where the loss is.
    report = Report(options.steps, me.rank == me.world_size - 1, log)
    report.say(announce(options, check_world(options, me.world_size), modelled.total_s))
    times_s: list[float] = []
    before = time.monotonic()
    for number in range(1, options.steps + 1):
        loss = train_step(training, shape, options, number, device)
        now = time.monotonic()
        times_s.append(now - before)
        report.iteration(number, loss, now - before)
        before = now
    report.say(summary(times_s, modelled, device))


def finish_world() -> None:
    """Leave together, so that no rank closes its connections while another still uses them."""
    import torch.distributed as dist

    dist.barrier()
    dist.destroy_process_group()


@contextmanager
def at_once_on_failure() -> Iterator[None]:
    """End a failing process without the interpreter's clean-up, which would wait for peers that wait for it.

    Its connections close with it, and that makes the peers fail too instead of waiting for ever.
    """
    done = False
    try:
        yield
        done = True
    finally:
        if not done:
            traceback.print_exc()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Train; returns the exit status."""
    options = parse(arguments)
    try:
        me = ranks.from_environment()
        check_world(options, me.world_size)
    except ValueError as error:
        print(f"train: {error}", file=sys.stderr)
        return 2
    with at_once_on_failure(), ExitStack() as stack:
        log = None
        if options.json_log and me.rank == me.world_size - 1:
            log = stack.enter_context(options.json_log.open("a"))
        run(options, me, log)
        finish_world()
    return 0


if __name__ == "__main__":
    sys.exit(main())
