"""A collective inside a CUDA graph: capture must not be disturbed, and replays must give the right sums."""

from typing import Any

from greyhound.selftest.own_ring import OwnRing
from greyhound.selftest.world import World
from greyhound.trace import layout

_REPLAYS = 10


def run(world: World, ring: OwnRing | None) -> dict[str, Any]:
    """What was seen; ``skipped`` says why where there is no GPU."""
    if not world.on_gpu:
        return {"ok": True, "skipped": "CUDA graphs need a GPU"}
    import torch
    import torch.distributed as dist

    tensor = torch.ones(4096, device=world.device)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        dist.all_reduce(tensor)
    torch.cuda.current_stream().wait_stream(side)
    if ring is not None:
        ring.read_all()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        dist.all_reduce(tensor)
    tensor.fill_(1.0)
    for _ in range(_REPLAYS):
        graph.replay()
    torch.cuda.synchronize()
    right = bool((tensor == float(world.size) ** _REPLAYS).all())
    return {"ok": right, "sum_is_right": right, **(_seen(ring) if ring is not None else {})}


def _seen(ring: OwnRing) -> dict[str, Any]:
    records = ring.read_all()
    captured = (records["flags"] & layout.GH_REC_CAPTURED) != 0
    launches = records["op"] == layout.GH_OP_GRAPH_LAUNCH
    return {"captured": int(captured.sum()), "launches": int(launches.sum())}
