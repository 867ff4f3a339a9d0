"""One rank of a small megatron-core training whose micro-batches are split as it is told.

It prints one JSON line: losses by iteration, a digest of the gradients' norms and of the weights, and the splits that
were in force. `--plans` is a list of [iteration, [micro-batches...]]: what the control page shows from that iteration
on (a little later on some ranks).
"""

import argparse
import json
import os
from functools import partial
from typing import Any

from greyhound.sandbox import ranks, torch_backend, world


class Scripted:
    """A control page that shows plans when the script says so; ranks see them at different iterations."""

    def __init__(self, plans: list[tuple[int, Any]], late: int) -> None:
        self._plans, self._late = plans, late
        self._looks = 0
        self.reports: list[dict[str, Any]] = []

    def new_plan(self) -> Any:
        self._looks += 1
        for number, (at, split) in enumerate(self._plans, 1):
            if self._looks == at + self._late:
                return split if isinstance(split, dict) else {"v": 1, "number": number, "microbatches": split}
        return None

    def report(self, fields: dict[str, Any]) -> None:
        self.reports.append(fields)


def _configure(options: argparse.Namespace, shape: Any) -> Any:
    """The TransformerConfig; what sandbox.model makes, and interleaved pipelines."""
    from greyhound.sandbox import model

    config = model._transformer_config(shape, model.Parallelism(options.tp, options.pp))
    config.calculate_per_token_loss = options.per_token_loss
    if options.vp > 1:
        config.virtual_pipeline_model_parallel_size = options.vp
        config.microbatch_group_size_per_vp_stage = options.pp
        config.batch_p2p_comm, config.overlap_p2p_comm = False, True
    return config


def _chunk(shape: Any, config: Any, stage: int, virtual: bool) -> Any:
    """The bare model of one (virtual) pipeline stage of this rank."""
    from megatron.core import parallel_state
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec

    place = {"vp_stage": stage} if virtual else {}
    asked = {"ignore_virtual": False, **place} if virtual else {}
    return GPTModel(
        config=config,
        transformer_layer_spec=get_gpt_layer_local_spec(),
        vocab_size=shape.vocabulary,
        max_sequence_length=shape.sequence,
        pre_process=parallel_state.is_pipeline_first_stage(**asked),
        post_process=parallel_state.is_pipeline_last_stage(**asked),
        share_embeddings_and_output_weights=True,
        **place,
    )


def build(shape: Any, options: argparse.Namespace) -> tuple[list[Any], Any, Any]:
    """(chunks, optimizer, config) for any of the layouts; sandbox.model builds those with one chunk."""
    from megatron.core.distributed import (
        DistributedDataParallel,
        DistributedDataParallelConfig,
        finalize_model_grads,
    )
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer

    from greyhound.sandbox import model

    config, virtual = _configure(options, shape), options.vp > 1
    both = options.overlap and options.distributed
    ddp = DistributedDataParallelConfig(
        use_distributed_optimizer=options.distributed,
        overlap_grad_reduce=options.overlap,
        overlap_param_gather=both,
        average_in_collective=options.average,
    )
    chunks = [
        DistributedDataParallel(config, ddp, _chunk(shape, config, stage, virtual), disable_bucketing=stage > 0)
        for stage in range(options.vp)
    ]
    for chunk in chunks:
        chunk.broadcast_params()
    adam = OptimizerConfig(
        optimizer="adam",
        lr=model.LEARNING_RATE,
        weight_decay=0.0,
        clip_grad=1.0,
        use_distributed_optimizer=options.distributed,
        overlap_param_gather=both,
    )
    optimizer = get_megatron_optimizer(adam, chunks, use_gloo_process_groups=False)
    config.finalize_model_grads_func = finalize_model_grads
    if options.overlap:
        config.no_sync_func = [c.no_sync for c in chunks] if virtual else chunks[0].no_sync
        config.grad_sync_func = [c.start_grad_sync for c in chunks] if virtual else chunks[0].start_grad_sync
    return chunks, optimizer, config


def _loss(per_token: bool, output: Any) -> Any:
    import torch

    mean = output.float().mean()
    if not per_token:
        return mean, mean.detach().clone()
    total = output.float().sum()
    return total, torch.tensor(output.numel(), dtype=torch.int), mean.detach().clone()


def _forward(per_token: bool, iterator: Any, chunk: Any) -> Any:
    tokens = next(iterator)
    import torch

    positions = torch.arange(tokens.shape[1] - 1).expand(tokens.shape[0], -1)
    output = chunk(tokens[:, :-1].contiguous(), positions, None, labels=tokens[:, 1:].contiguous())
    return output, partial(_loss, per_token)


def mean_loss(losses: list[Any], weight: float) -> float:
    """The mean over all micro-batches of the iteration, on the last pipeline stage."""
    import torch
    import torch.distributed as dist
    from megatron.core import parallel_state

    if not losses:
        return float("nan")
    mean = torch.stack(losses).mean() * weight
    dist.all_reduce(mean, group=parallel_state.get_data_parallel_group())
    return float(mean) / int(parallel_state.get_data_parallel_world_size())


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, default in (("tp", 1), ("pp", 1), ("vp", 1), ("micro", 4), ("steps", 6)):
        parser.add_argument(f"--{name}", type=int, default=default)
    for name in ("distributed", "overlap", "average", "per-token-loss"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--plans", type=json.loads, default=[])
    parser.add_argument("--blind", type=int, default=-1, help="this rank has no control page")
    options = parser.parse_args()
    me = ranks.from_environment()
    with world.at_once_on_failure():
        world.start(me, torch_backend.BACKEND_NAME, 0.0)
        print(json.dumps(train(options, me)), flush=True)
        world.finish()


def train(options: argparse.Namespace, me: ranks.RankEnvironment) -> dict[str, Any]:
    import torch
    from megatron.core import parallel_state
    from megatron.core.pipeline_parallel import get_forward_backward_func

    import greyhound.megatron as gm
    from greyhound.sandbox import model, shims

    shims.install()
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=options.tp,
        pipeline_model_parallel_size=options.pp,
        virtual_pipeline_model_parallel_size=options.vp if options.vp > 1 else None,
        create_gloo_process_groups=False,
    )
    from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed

    torch.manual_seed(1 + 100 * parallel_state.get_pipeline_model_parallel_rank())
    model_parallel_cuda_manual_seed(1)
    shape = model.GptShape(options.pp * options.vp)
    chunks, optimizer, config = build(shape, options)
    control = None if me.rank == options.blind else Scripted(options.plans, me.rank % 3)
    run = gm.attach(chunks, options.micro, config, control)
    losses, splits, norms = [], [], []
    for number in range(options.steps):
        count = run.begin()
        for chunk in chunks:
            chunk.zero_grad_buffer()
        optimizer.zero_grad()
        first = number * run.layout.total + run.share.first
        data = [(model.micro_batch(shape, 7, i) for i in range(first, first + count)) for _ in chunks]
        outputs = get_forward_backward_func()(
            forward_step_func=partial(_forward, options.per_token_loss),
            data_iterator=data if options.vp > 1 else data[0],
            model=chunks,
            num_microbatches=count,
            seq_length=shape.sequence,
            micro_batch_size=shape.micro_batch,
            forward_only=False,
        )
        _, norm, _ = optimizer.step()
        losses.append(mean_loss(outputs, run.weight))
        norms.append(float(norm))
        splits.append(list(run.split))
    run.finish()
    weights = [float(p.detach().double().pow(2).sum()) for chunk in chunks for p in chunk.parameters()]
    told = control.reports[-1] if control is not None and control.reports else {}
    return {
        "losses": losses,
        "norms": norms,
        "weights": weights,
        "splits": splits,
        "inactive": run.inactive,
        "told": told,
        "pid": os.getpid(),
    }


if __name__ == "__main__":
    main()
