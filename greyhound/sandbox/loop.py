"""The training loop of the trainings without Megatron, and its options (test bed only).

Each of them (`train_ddp`, `train_fsdp2`, `train_hsdp`, `train_moe`) brings a `build` that wraps the small GPT in its
framework; the loop accumulates gradients over micro-batches, logs, evaluates and saves checkpoints as real ones do.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from greyhound.sandbox import checkpoint, data, ranks, world
from greyhound.sandbox.option_types import positive
from greyhound.sandbox.slowed import Slowed
from greyhound.sandbox.torch_backend import BACKEND_NAME

EVALUATION_BATCHES = 4
_EVALUATION_DATA = 1 << 20  # micro-batches from this number on are never trained on


@dataclass(frozen=True)
class Job:
    """What a framework brings: the wrapped model, its optimizer, and its own steps in the loop.

    `accumulate` gets whether the micro-batch is the iteration's last one (whose gradients are reduced);
    `finish_gradients` runs before the optimizer; `state` is what a checkpoint holds.
    """

    name: str
    model: Any
    optimizer: Any
    accumulate: Callable[[bool], AbstractContextManager[Any]] = lambda _last: nullcontext()
    finish_gradients: Callable[[], None] = lambda: None
    state: Callable[[], dict[str, Any]] | None = None


Build = Callable[[Any, int], Job]
"""From the bare model's shape and the world's size; torch may be imported in it, and no earlier."""


def parse(program: str, description: str | None, arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line; `program` is the module's name."""
    parser = argparse.ArgumentParser(prog=f"python -m greyhound.sandbox.{program}", description=description)
    parser.add_argument("--micro-batches", type=positive, default=4, help="per iteration and rank (default 4)")
    parser.add_argument("--steps", type=positive, default=60, help="iterations (default 60)")
    parser.add_argument("--layers", type=positive, default=2, help="transformer layers (default 2)")
    parser.add_argument("--seed", type=int, default=1234, help="of weights and data (default 1234)")
    parser.add_argument("--layer-ms", type=float, default=10.0, help="modelled forward time of a layer (default 10)")
    parser.add_argument("--loss-every", type=positive, default=1, help="iterations between two losses (default 1)")
    parser.add_argument("--evaluate-every", type=positive, help="iterations between two evaluations (default never)")
    checkpoint.add_options(parser)
    data.add_options(parser)
    parser.add_argument("--checkpoint-s", type=float, default=0.0, help="pause for a slow file system (default 0)")
    parser.add_argument("--json-log", type=Path, metavar="FILE", help="one JSON object an iteration, appended")
    parser.add_argument(
        "--backend", choices=(BACKEND_NAME, "gloo"), default=BACKEND_NAME, help="gloo: without the stand-in's time"
    )
    options = parser.parse_args(arguments)
    checkpoint.check_options(parser, options)
    return options


class Loop:
    """One rank's training: the job, its data and its place among the ranks."""

    def __init__(self, job: Job, shape: Any, options: argparse.Namespace, me: ranks.RankEnvironment) -> None:
        from greyhound.sandbox.model import micro_batch

        self.job = job
        self.options = options
        self._me = me
        self._loss = float("nan")
        self._slowed = Slowed(me.local_rank)
        self.reader = data.Reader(partial(micro_batch, shape, options.seed), options.seed, options.ragged, self._slowed)

    def _mean(self, loss: Any) -> float:
        """The mean of `loss` over all ranks."""
        import torch.distributed as dist

        mean = loss.detach().clone()
        dist.all_reduce(mean)
        return float(mean) / self._me.world_size

    def step(self, number: int, device: world.Device) -> float:
        """One iteration (numbered from 1); the newest loss that is known."""
        from greyhound.sandbox import device_time

        count = self.options.micro_batches
        first = ((number - 1) * self._me.world_size + self._me.rank) * count
        self.job.optimizer.zero_grad()
        losses = []
        for index, batch in enumerate(self.reader.batches(first, count)):
            with self.job.accumulate(index == count - 1):
                loss = self.job.model(batch) / count
                loss.backward()
            losses.append(loss.detach())
        self.job.finish_gradients()
        device.enqueue(device_time.OPTIMIZER_SHARE * device.layer_s)
        self.job.optimizer.step()
        if (number - 1) % self.options.loss_every == 0:
            self._loss = self._mean(sum(losses))
        device.synchronize()
        return self._loss

    def evaluate(self) -> float:
        """The mean loss of a few batches that are never trained on."""
        import torch

        self.job.model.eval()
        with torch.no_grad():
            first = _EVALUATION_DATA + self._me.rank * EVALUATION_BATCHES
            losses = [self.job.model(self.reader.read(first + index)) for index in range(EVALUATION_BATCHES)]
        self.job.model.train()
        return self._mean(torch.stack(losses).mean())

    def checkpoint(self, number: int) -> None:
        """Save with torch's distributed checkpoints: object collectives, files, and everybody waits."""
        import torch.distributed as dist
        import torch.distributed.checkpoint as dcp

        state = self.job.state() if self.job.state else self.job.model.state_dict()
        dcp.save({"model": state}, checkpoint_id=self.options.checkpoint_dir / str(number))
        self._slowed.write_checkpoint()
        if self._me.rank == 0:
            time.sleep(self.options.checkpoint_s)
        dist.barrier()

    def between(self, number: int, report: world.Report) -> None:
        """What comes after iteration `number` and before the next one."""
        if self.options.evaluate_every and number % self.options.evaluate_every == 0:
            report.say(f"evaluation after iteration {number}: loss {self.evaluate():.6f}")
        if self.options.checkpoint_every and number % self.options.checkpoint_every == 0:
            self.checkpoint(number)
            report.say(f"checkpoint after iteration {number}")


def _run(build: Build, options: argparse.Namespace, me: ranks.RankEnvironment, log: TextIO | None) -> None:
    device = world.start(me, options.backend, options.layer_ms / 1e3)
    import torch

    from greyhound.sandbox import device_time
    from greyhound.sandbox.model import GptShape

    torch.manual_seed(options.seed)
    shape = GptShape(options.layers)
    job = build(shape, me.world_size)
    modelled_s = device_time.ModelledIteration(options.layers, 1, options.micro_batches, device.layer_s).total_s
    loop = Loop(job, shape, options, me)
    model = getattr(job.model, "module", job.model)
    device_time.attach_gpt(model, device.layer_s, device.enqueue, loop.reader.stretch)
    report = world.Report(options.steps, me.rank == me.world_size - 1, log)
    report.say(
        f"{job.name}: GPT of {options.layers} layers on {me.world_size} ranks, {options.micro_batches} micro-batches; "
        f"modelled device time {modelled_s * 1e3:.0f} ms of an iteration"
    )
    for number in range(1, options.steps + 1):
        report.iteration(number, loop.step(number, device))
        loop.between(number, report)
    report.summary(modelled_s)


def main(program: str, description: str | None, build: Build, arguments: Sequence[str] | None = None) -> int:
    """Train; returns the exit status."""
    options = parse(program, description, arguments)
    try:
        me = ranks.from_environment()
    except ValueError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return 2
    with world.at_once_on_failure(), ExitStack() as stack:
        log = None
        if options.json_log and me.rank == me.world_size - 1:
            log = stack.enter_context(options.json_log.open("a"))
        _run(build, options, me, log)
        world.finish()
    return 0
