"""What of a Megatron training S2 can follow, found out at the first step: accepted with its constraints, or refused.

Gradients of an uneven split equal the even split's only if each replica's count weighs. Without per-token loss each
replica divides its loss by its own count m_i, so its gradients are scaled by m_i D / M before they are summed (the
buckets' own factor, which covers the distributed optimizer, overlap and averaging in the collective alike). With
`calculate_per_token_loss` Megatron divides by all tokens itself, and nothing is to be scaled.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Recipe:
    """What the layout asks: a `multiple` of each count, whether gradients must be weighed; or why it is `refused`."""

    multiple: int = 1
    weighs: bool = True
    refused: str = ""


def examine(chunks: Sequence[Any], config: Any) -> Recipe:
    """The recipe of wrapped model chunks (DistributedDataParallel) and their TransformerConfig (None: the first's)."""
    if config is None:
        config = next((getattr(chunk, "config", None) for chunk in chunks), None)
    if config is None:
        return Recipe(refused="the model has no TransformerConfig")
    if int(getattr(config, "expert_model_parallel_size", 1) or 1) > 1:
        return Recipe(refused="expert parallelism exchanges tokens between replicas: all need equal micro-batches")
    weighs = not getattr(config, "calculate_per_token_loss", False)
    if weighs and not all(_buckets(chunk) for chunk in chunks):
        return Recipe(refused="the model isn't wrapped in megatron.core's DistributedDataParallel")
    virtual = getattr(config, "virtual_pipeline_model_parallel_size", None)
    if len(chunks) > 1 or virtual:
        if getattr(config, "batch_p2p_comm", False):
            return Recipe(refused="interleaved pipelines with batch_p2p_comm; use overlap_p2p_comm")
        names = ("microbatch_group_size_per_vp_stage", "pipeline_model_parallel_size")
        group = next((size for name in names if (size := getattr(config, name, None))), None)
        if group is None:
            return Recipe(refused="interleaved pipelines of unknown size")
        return Recipe(int(group), weighs)
    return Recipe(1, weighs)


def _buckets(chunk: Any) -> list[Any]:
    groups = [*getattr(chunk, "bucket_groups", ()), *getattr(chunk, "expert_parallel_bucket_groups", ())]
    return [bucket for group in groups for bucket in group.buckets]


class Scaling:
    """The buckets' gradient factors, weighted by this replica's share and put back."""

    def __init__(self, chunks: Sequence[Any]) -> None:
        self._own = [(bucket, bucket.gradient_scaling_factor) for chunk in chunks for bucket in _buckets(chunk)]

    def weigh(self, weight: float) -> None:
        """Factor `weight` (m_i D / M; 1.0: as Megatron made it) from the next reduction on."""
        for bucket, factor in self._own:
            bucket.gradient_scaling_factor = factor if weight == 1.0 else factor * weight
