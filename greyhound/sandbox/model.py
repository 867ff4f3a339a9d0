"""A small GPT of megatron-core on CPU tensors, its optimizer and its synthetic data (test bed only)."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from greyhound.sandbox import shims

LEARNING_RATE = 3e-3


@dataclass(frozen=True)
class GptShape:
    """Size of the model and of a micro-batch."""

    layers: int
    hidden: int = 64
    heads: int = 4
    sequence: int = 32
    vocabulary: int = 128
    micro_batch: int = 2


@dataclass(frozen=True)
class Parallelism:
    """How the ranks are laid out; the data-parallel size follows from the world's."""

    tensor: int
    pipeline: int
    distributed_optimizer: bool = False
    overlap: bool = False


@dataclass
class Training:
    """What a training loop holds: the wrapped model of this pipeline stage, its configuration and the optimizer."""

    model: Any
    config: Any
    optimizer: Any


def initialize_parallel(parallelism: Parallelism, seed: int) -> None:
    """Make megatron-core's process groups in the initialised world and seed this rank's generators."""
    shims.install()
    from megatron.core import parallel_state
    from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed

    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=parallelism.tensor,
        pipeline_model_parallel_size=parallelism.pipeline,
        create_gloo_process_groups=False,
    )
    torch.manual_seed(seed + 100 * parallel_state.get_pipeline_model_parallel_rank())
    model_parallel_cuda_manual_seed(seed)


def _transformer_config(shape: GptShape, parallelism: Parallelism) -> Any:
    from megatron.core.transformer import TransformerConfig

    return TransformerConfig(
        num_layers=shape.layers,
        hidden_size=shape.hidden,
        num_attention_heads=shape.heads,
        tensor_model_parallel_size=parallelism.tensor,
        pipeline_model_parallel_size=parallelism.pipeline,
        pipeline_dtype=torch.float32,
        use_cpu_initialization=True,
        batch_p2p_sync=False,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        gradient_accumulation_fusion=False,
        masked_softmax_fusion=False,
        bias_dropout_fusion=False,
        bias_activation_fusion=False,
        persist_layer_norm=False,
        attention_softmax_in_fp32=True,
    )


def _model_chunk(shape: GptShape, config: Any) -> Any:
    """This pipeline stage of the GPT; embedding and output layer share their weights, as Megatron-LM's default."""
    from megatron.core import parallel_state
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec

    return GPTModel(
        config=config,
        transformer_layer_spec=get_gpt_layer_local_spec(),
        vocab_size=shape.vocabulary,
        max_sequence_length=shape.sequence,
        pre_process=parallel_state.is_pipeline_first_stage(),
        post_process=parallel_state.is_pipeline_last_stage(),
        share_embeddings_and_output_weights=True,
    )


def build(shape: GptShape, parallelism: Parallelism) -> Training:
    """Build model, DDP wrapper and optimizer for the current parallel state (identical initial weights everywhere)."""
    from megatron.core.distributed import (
        DistributedDataParallel,
        DistributedDataParallelConfig,
        finalize_model_grads,
    )
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer

    config = _transformer_config(shape, parallelism)
    ddp_config = DistributedDataParallelConfig(
        use_distributed_optimizer=parallelism.distributed_optimizer,
        overlap_grad_reduce=parallelism.overlap,
        overlap_param_gather=parallelism.overlap and parallelism.distributed_optimizer,
    )
    model = DistributedDataParallel(config, ddp_config, _model_chunk(shape, config))
    model.broadcast_params()
    optimizer_config = OptimizerConfig(
        optimizer="adam",
        lr=LEARNING_RATE,
        weight_decay=0.0,
        clip_grad=1.0,
        use_distributed_optimizer=parallelism.distributed_optimizer,
        overlap_param_gather=ddp_config.overlap_param_gather,
    )
    optimizer = get_megatron_optimizer(optimizer_config, [model], use_gloo_process_groups=False)
    config.finalize_model_grads_func = finalize_model_grads
    if parallelism.overlap:
        config.no_sync_func = model.no_sync
        config.grad_sync_func = model.start_grad_sync
    return Training(model, config, optimizer)


def micro_batch(shape: GptShape, seed: int, index: int) -> torch.Tensor:
    """Tokens of the globally numbered micro-batch `index`: arithmetic progressions, so that there is a rule to learn.

    Returns:
        Integers, shape (micro_batch, sequence + 1); the last `sequence` columns are the labels.
    """
    generator = torch.Generator().manual_seed(seed * 1_000_003 + index)
    start = torch.randint(shape.vocabulary, (shape.micro_batch, 1), generator=generator)
    stride = torch.randint(1, 4, (shape.micro_batch, 1), generator=generator)
    return (start + stride * torch.arange(shape.sequence + 1)) % shape.vocabulary


def _loss(output: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    loss = output.float().mean()
    return loss, loss.detach().clone()


def forward_step(iterator: Iterator[torch.Tensor], model: Any) -> tuple[Any, Any]:
    """Megatron's forward step: the model's output and the function that turns it into a loss."""
    tokens = next(iterator)
    positions = torch.arange(tokens.shape[1] - 1).expand(tokens.shape[0], -1)
    output = model(tokens[:, :-1].contiguous(), positions, None, labels=tokens[:, 1:].contiguous())
    return output, partial(_loss)
