"""One rank of the self-test: python rank.py --out DIR --run on|off   (started by srun or torchrun, once with the hook
and once without).

Runs in the training's own environment: needs torch and numpy, and finds this package by its own path, behind
everything that the environment brings itself. Writes DIR/RUN.RANK.json; exit 1 with one line if it can't run.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[2]))

from greyhound.selftest import calls, certificate, cost, graph, training, world
from greyhound.selftest.own_ring import OwnRing
from greyhound.trace.records import symbols
from greyhound.trace.ring import RingError

_STEPS = 20
_SETTLED = 5  # iterations after which an iteration's calls no longer change (DDP rebuilds its buckets once)
_WINDOW_STEPS = 10
_WINDOW_CALLS = 1000
_TINY_ELEMENTS = 2


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the results, seen by all ranks")
    parser.add_argument("--run", choices=("on", "off"), required=True, help="with or without the hook")
    parser.add_argument("--pairs", type=int, default=cost.PAIRS, help="pairs of windows with recording off and on")
    return parser.parse_args()


def check_calls(here: world.World, ring: OwnRing | None) -> dict[str, Any]:
    """Make the listed calls; which results are wrong and which records differ."""
    wrong, differing, made = [], [], 0
    for step in calls.steps(here):
        if ring is not None:
            here.synchronize()
            ring.read_all()
        if step.run() is False:
            wrong.append(step.name)
        here.synchronize()
        made += len(step.expected)
        difference = calls.compare(step.expected, ring.read()) if ring is not None else ""
        if difference:
            differing.append(f"{step.name}: {difference}")
    return {"ok": not wrong and not differing, "calls": made, "wrong_results": wrong, "differing_records": differing}


def check_training(here: world.World, ring: OwnRing | None, kind: str) -> dict[str, Any]:
    """Train; the losses in hex, and whether every settled iteration made the same calls."""
    step = training.training_step(here, kind)
    losses, iterations = [], []
    for _ in range(_STEPS):
        if ring is not None:
            here.synchronize()
            ring.read_all()
        losses.append(step().hex())
        here.synchronize()
        if ring is not None:
            iterations.append(tuple(symbols(ring.read()).tolist()))
    settled = set(iterations[_SETTLED:])
    found: dict[str, Any] = {"ok": True, "losses": losses}
    if ring is not None:
        found |= {"ok": len(settled) == 1 and settled != {()}, "calls_an_iteration": len(iterations[-1])}
    return found


def measure(here: world.World, ring: OwnRing, count: int) -> dict[str, Any]:
    """Pairs of seconds, off and on: an iteration of DDP, and a call on two elements."""
    import torch
    import torch.distributed as dist

    step = training.training_step(here, "ddp")
    tiny = torch.zeros(_TINY_ELEMENTS, device=here.device)
    for _ in range(_SETTLED):
        step()
    work = {"iteration": (step, _WINDOW_STEPS), "call": (lambda: dist.all_reduce(tiny), _WINDOW_CALLS)}
    found = {}
    for name, (once, repeats) in work.items():
        taken = cost.pairs(here, ring, once, repeats, count)
        found[name] = {"off_s": [pair.off_s for pair in taken], "on_s": [pair.on_s for pair in taken]}
    return found


def run(options: argparse.Namespace) -> dict[str, Any]:
    """All parts in order; RingError or RuntimeError where this rank can't take part."""
    import torch.distributed as dist

    here = world.start()
    dist.barrier()
    here.synchronize()
    ring = OwnRing() if options.run == "on" else None
    found: dict[str, Any] = {"run": options.run, "rank": here.rank, "world_size": here.size, "on_gpu": here.on_gpu}
    found["calls"] = check_calls(here, ring)
    for kind in training.KINDS:
        found[kind] = check_training(here, ring, kind)
    found["graph"] = graph.run(here, ring)
    if ring is not None:
        found["cost"] = measure(here, ring, options.pairs)
        found["platform"] = vars(certificate.here(ring.nccl_version))
    dist.barrier()
    dist.destroy_process_group()
    return found


def main() -> int:
    """Run and write the result by rename."""
    options = _parse()
    try:
        found = run(options)
    except (RingError, RuntimeError, ValueError, OSError) as error:
        print(f"greyhound selftest: this rank can't run: {error}", file=sys.stderr, flush=True)
        return 1
    path = options.out / f"{options.run}.{found['rank']}.json"
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps(found))
    temporary.replace(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
