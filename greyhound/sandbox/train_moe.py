"""Train a small mixture of experts with all-to-all on the stand-in for NCCL and CUDA (test bed only).

Two ranks share the experts of each layer (EP2); the rest of the ranks are data parallel.
"""

import sys
from typing import TYPE_CHECKING, Any

from greyhound.sandbox import loop

if TYPE_CHECKING:
    from greyhound.sandbox.model import GptShape

EXPERT_RANKS = 2


def expert_groups(world_size: int) -> tuple[Any, Any]:
    """This rank's process groups: the ranks that share experts, and those that hold the same ones."""
    import torch.distributed as dist

    if world_size % EXPERT_RANKS:
        raise ValueError(f"expert parallelism needs a multiple of {EXPERT_RANKS} ranks, not {world_size}")
    share = [list(range(first, first + EXPERT_RANKS)) for first in range(0, world_size, EXPERT_RANKS)]
    same = [list(range(place, world_size, EXPERT_RANKS)) for place in range(EXPERT_RANKS)]
    return dist.new_subgroups_by_enumeration(share)[0], dist.new_subgroups_by_enumeration(same)[0]


def build(shape: "GptShape", world_size: int) -> loop.Job:
    """Dense gradients are reduced over all ranks, an expert's over those that hold it too."""
    import torch
    import torch.distributed as dist
    from torch import optim

    from greyhound.sandbox.experts import ExpertMlp, reduce_gradients
    from greyhound.sandbox.model import LEARNING_RATE
    from greyhound.sandbox.plain_model import Gpt

    share, same = expert_groups(world_size)
    model = Gpt(shape, lambda s: ExpertMlp(s, share))
    place = dist.get_rank(share)
    own = {name for name, _ in model.named_parameters() if ".expert." in name}
    experts = [parameter for name, parameter in model.named_parameters() if name in own]
    dense = [parameter for name, parameter in model.named_parameters() if name not in own]
    with torch.no_grad():
        for parameter in experts:  # each rank's expert is another one
            parameter.mul_(1.0 - 0.1 * place)

    def finish_gradients() -> None:
        reduce_gradients(dense, None, world_size)
        reduce_gradients(experts, same, world_size)

    return loop.Job(
        name=f"mixture of experts, EP{EXPERT_RANKS} of {world_size}",
        model=model,
        optimizer=optim.Adam(model.parameters(), lr=LEARNING_RATE),
        finish_gradients=finish_gradients,
        state=lambda: {f"{place}.{key}" if key in own else key: value for key, value in model.state_dict().items()},
    )


if __name__ == "__main__":
    sys.exit(loop.main("train_moe", __doc__, build))
