"""Train a small GPT with megatron-core on the stand-in for NCCL and CUDA (test bed only).

The losses are real: every layer's arithmetic runs on the CPU. The *time* is mostly modelled: besides its arithmetic
each attention, MLP, embedding, output layer and optimizer step enqueues a kernel of a fixed duration on the stand-in's
stream (--layer-ms a layer, micro-batch and forward pass, twice that backward), which takes longer on a GPU that
`greyhound inject gpu` made slow. Communication, its order and its volume are Megatron's own.

Starts under srun (one task a GPU), srun torchrun (one task a node), torchrun, or `greyhound launch`.
"""

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import greyhound.megatron as gm
from greyhound.sandbox import checkpoint, data, ranks, world
from greyhound.sandbox.option_types import positive
from greyhound.sandbox.slowed import Slowed

if TYPE_CHECKING:
    from greyhound.sandbox.model import GptShape, Parallelism, Training


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m greyhound.sandbox.train",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--tp", type=positive, default=1, help="tensor-parallel size (default 1)")
    parser.add_argument("--pp", type=positive, default=1, help="pipeline-parallel size (default 1)")
    parser.add_argument("--dp", type=positive, help="data-parallel size (default: the rest of the ranks)")
    parser.add_argument("--micro-batches", type=positive, default=12, help="per iteration and replica (default 12)")
    parser.add_argument("--steps", type=positive, default=60, help="iterations (default 60)")
    parser.add_argument("--layers", type=positive, help="transformer layers (default: one per pipeline stage)")
    parser.add_argument("--seed", type=int, default=1234, help="of weights and data (default 1234)")
    parser.add_argument("--layer-ms", type=float, default=20.0, help="modelled forward time of a layer (default 20)")
    parser.add_argument("--distributed-optimizer", action="store_true", help="shard the optimizer's state over DP")
    parser.add_argument("--overlap", action="store_true", help="reduce gradients while the backward pass runs")
    checkpoint.add_options(parser)
    data.add_options(parser)
    parser.add_argument("--plugin", action="store_true", help="follow greyhound's plans of micro-batches")
    parser.add_argument("--json-log", type=Path, metavar="FILE", help="one JSON object an iteration, appended")
    parser.add_argument(
        "--backend", choices=("greyhound", "gloo"), default="greyhound", help="gloo: without the stand-in and its time"
    )
    options = parser.parse_args(arguments)
    options.layers = options.layers or options.pp
    if options.layers % options.pp:
        parser.error(f"--layers {options.layers} can't be divided over --pp {options.pp} stages")
    checkpoint.check_options(parser, options)
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


def mean_loss(losses: list[Any], weight: float) -> float:
    """Mean over micro-batches and data-parallel replicas, on the last pipeline stage; NaN on the others.

    `weight` is this replica's: its share of the micro-batches against the even one.
    """
    import torch
    import torch.distributed as dist
    from megatron.core import parallel_state

    if not losses:
        return float("nan")
    mean = torch.stack(losses).mean() * weight
    dist.all_reduce(mean, group=parallel_state.get_data_parallel_group())
    return float(mean) / int(parallel_state.get_data_parallel_world_size())


def train_step(
    training: "Training",
    shape: "GptShape",
    options: argparse.Namespace,
    iteration: int,
    device: world.Device,
    reader: data.Reader,
    plan: gm.Run,
) -> float:
    """One iteration (numbered from 1); returns the loss, NaN where this rank hasn't the last pipeline stage."""
    from megatron.core.pipeline_parallel import get_forward_backward_func

    from greyhound.sandbox import device_time, model

    count = plan.begin()
    first = (iteration - 1) * plan.layout.total + plan.share.first
    training.model.zero_grad_buffer()
    training.optimizer.zero_grad()
    losses = get_forward_backward_func()(
        forward_step_func=model.forward_step,
        data_iterator=reader.batches(first, count),
        model=[training.model],
        num_microbatches=count,
        seq_length=shape.sequence,
        micro_batch_size=shape.micro_batch,
        forward_only=False,
    )
    device.enqueue(device_time.OPTIMIZER_SHARE * device.layer_s)
    training.optimizer.step()
    loss = mean_loss(losses, plan.weight)
    device.synchronize()
    return loss


def announce(options: argparse.Namespace, replicas: int, modelled_s: float) -> str:
    """The first line: the layout, and which part of the time is modelled."""
    return (
        f"GPT of {options.layers} layers: TP{options.tp} DP{replicas} PP{options.pp}, {options.micro_batches} "
        f"micro-batches; modelled device time {modelled_s * 1e3:.0f} ms of an iteration (attention, MLP, embedding, "
        "output layer, optimizer; communication and losses are real)"
    )


def run(options: argparse.Namespace, me: ranks.RankEnvironment, log: TextIO | None) -> None:
    """Build the model and train it; every rank runs this."""
    device = world.start(me, options.backend, options.layer_ms / 1e3)
    from greyhound.sandbox import device_time, model

    parallelism: Parallelism = model.Parallelism(options.tp, options.pp, options.distributed_optimizer, options.overlap)
    model.initialize_parallel(parallelism, options.seed)
    shape = model.GptShape(options.layers)
    training = model.build(shape, parallelism)
    plan = gm.attach(training.model, options.micro_batches) if options.plugin else gm.even(options.micro_batches)
    slowed = Slowed(me.local_rank)
    reader = data.Reader(partial(model.micro_batch, shape, options.seed), options.seed, options.ragged, slowed)
    device_time.attach_gpt(training.model.module, device.layer_s, device.enqueue, reader.stretch)
    modelled = device_time.ModelledIteration(
        options.layers // options.pp, options.pp, options.micro_batches, device.layer_s
    )
    # The last rank has the last pipeline stage, where the loss is.
    report = world.Report(options.steps, me.rank == me.world_size - 1, log)
    report.say(announce(options, check_world(options, me.world_size), modelled.total_s))
    for number in range(1, options.steps + 1):
        report.iteration(number, train_step(training, shape, options, number, device, reader, plan))
        if options.checkpoint_every and number % options.checkpoint_every == 0:
            checkpoint.save_shard(training.model.module.state_dict(), options.checkpoint_dir, me.rank, slowed)
    plan.finish()
    report.summary(modelled.total_s)


def main(arguments: Sequence[str] | None = None) -> int:
    """Train; returns the exit status."""
    options = parse(arguments)
    try:
        me = ranks.from_environment()
        check_world(options, me.world_size)
    except ValueError as error:
        print(f"train: {error}", file=sys.stderr)
        return 2
    with world.at_once_on_failure(), ExitStack() as stack:
        log = None
        if options.json_log and me.rank == me.world_size - 1:
            log = stack.enter_context(options.json_log.open("a"))
        run(options, me, log)
        world.finish()
    return 0


if __name__ == "__main__":
    sys.exit(main())
