"""Two small deterministic trainings, DDP and FSDP2: their losses must be the same with and without the hook."""

from collections.abc import Callable
from typing import Any

from greyhound.selftest.world import World

_WIDTH, _LAYERS, _BATCH, _SEED = 256, 4, 8, 1234
Step = Callable[[], float]


def _model(world: World) -> Any:
    import torch

    torch.manual_seed(_SEED)
    layers: list[Any] = []
    for _ in range(_LAYERS):
        layers += [torch.nn.Linear(_WIDTH, _WIDTH), torch.nn.Tanh()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(_WIDTH, 1)).to(world.device)


def _ddp(world: World) -> Any:
    from torch.nn.parallel import DistributedDataParallel

    return DistributedDataParallel(_model(world), bucket_cap_mb=0.25)


def _fsdp2(world: World) -> Any:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(world.device.type, (world.size,))
    model = _model(world)
    for layer in model:
        if list(layer.parameters()):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


KINDS: dict[str, Callable[[World], Any]] = {"ddp": _ddp, "fsdp2": _fsdp2}


def training_step(world: World, kind: str) -> Step:
    """A function that does one iteration of ``kind`` and returns this rank's loss; every rank has other data."""
    import torch

    model = KINDS[kind](world)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = torch.Generator().manual_seed(_SEED + world.rank)

    def step() -> float:
        batch = torch.randn(_BATCH, _WIDTH, generator=data).to(world.device)
        optimizer.zero_grad(set_to_none=True)
        loss = (model(batch).squeeze(-1) - batch.mean(dim=1)).square().mean()
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step
