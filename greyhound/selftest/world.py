"""The process group of a self-test: NCCL on GPUs, or the stand-in's backend where there is none (test bed only)."""

import os
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from greyhound.sandbox import ranks, torch_backend

_TIMEOUT = timedelta(seconds=300)


@dataclass(frozen=True)
class World:
    """This rank's place and its device; ``native`` is the stand-in's module, None on a real GPU."""

    rank: int
    size: int
    device: Any
    native: Any = None

    @property
    def on_gpu(self) -> bool:
        """Whether the calls go to a real NCCL."""
        return self.native is None

    def synchronize(self) -> None:
        """Wait for the device."""
        if self.native is not None:
            self.native.synchronize()
            return
        import torch

        torch.cuda.synchronize()


def start() -> World:
    """Join the other ranks (torchrun's or Slurm's variables); RuntimeError if neither GPU nor stand-in is there."""
    me = ranks.from_environment()
    if os.environ.get("GREYHOUND_STANDIN_PAGE"):
        return _start_standin(me)
    import torch
    import torch.distributed as dist

    if not torch.cuda.is_available():
        raise RuntimeError("torch sees no GPU here: run the self-test on the nodes that are to be certified")
    device = torch.device("cuda", me.local_rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    store = dist.TCPStore(me.master_address, me.master_port, me.world_size, me.rank == 0, timeout=_TIMEOUT)
    dist.init_process_group("nccl", store=store, rank=me.rank, world_size=me.world_size, timeout=_TIMEOUT)
    return World(me.rank, me.world_size, device)


def _start_standin(me: ranks.RankEnvironment) -> World:
    torch_backend.preload_runtime()
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    native = torch_backend.register()
    torch_backend.choose_device(native, me.local_rank)
    store = dist.TCPStore(me.master_address, me.master_port, me.world_size, me.rank == 0, timeout=_TIMEOUT)
    dist.init_process_group(
        torch_backend.BACKEND_NAME, store=store, rank=me.rank, world_size=me.world_size, timeout=_TIMEOUT
    )
    return World(me.rank, me.world_size, torch.device("cpu"), native)
