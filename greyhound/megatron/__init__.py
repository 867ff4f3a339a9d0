"""Greyhound's part in a Megatron-core training: micro-batches that follow each replica's speed (docs/megatron.md).

    import greyhound.megatron as gm
    run = gm.attach(model_chunks, num_microbatches=M)   # after the process groups, before the first iteration

Without `--greyhound` it does nothing but answer the even split. Needs the standard library, torch and megatron-core.
"""

from greyhound.megatron.batches import Batches, Share
from greyhound.megatron.plugin import Run, attach, even

__all__ = ["Batches", "Run", "Share", "attach", "even"]
