"""A recorded data-parallel job of two machines: dumps as `greyhound trace record` leaves them, one rank late."""

from types import SimpleNamespace

import numpy as np

from greyhound.trace import layout
from greyhound.trace.dump import DumpWriter
from greyhound.trace.records import COMM_DTYPE
from greyhound.trace.ring import RingHeader
from tests.trace.ring_writer import make_records

WORLD, CALLS, ITERATIONS = 0xD9, 6, 40
ITERATION_NS, COMPUTE_NS, CALL_NS = 650_000_000, 50_000_000, 8_000_000
BEGIN_WALL_NS = 1_764_600_000_000_000_000


def header(rank, node, boot, mono_ns, wall_ns):
    return RingHeader(
        magic=layout.GH_MAGIC, layout=layout.GH_LAYOUT, record_bytes=64, capacity=1024, pid=1000 + rank, uid=1,
        pid_start=5, boot_id=boot, world_rank=rank, local_rank=rank % 2, slurm_procid=rank, node_index=node,
        gpu_bus_id="0000:65:00.0", created_ns=mono_ns, created_realtime_ns=wall_ns, nccl_version=22105, cuda_device=0,
        file_bytes=0,
    )  # fmt: skip


def communicators(rank, ranks):
    table = np.zeros(1, dtype=COMM_DTYPE)
    table["hash"], table["size"], table["rank"], table["state"] = WORLD, ranks, rank, layout.GH_COMM_LIVE
    return table


def as_timings(records, start_ns, took_ns):
    """GPU timings of records, as the hook writes them (struct gh_timing)."""
    timed = records.copy()
    timed["op"] |= layout.GH_OP_TIMING
    timed["aux"], timed["thread"] = records["t_ns"] >> np.uint64(32), records["t_ns"] & np.uint64(0xFFFFFFFF)
    timed["t_ns"], timed["host_ns"], timed["redop"] = start_ns, took_ns, 0
    return timed


def calls_of(late_ns, seed, timed, mono_ns):
    """An iteration is six reductions; each ends for all at once, a late rank comes to each `late_ns` later."""
    count = CALLS * ITERATIONS
    number = np.arange(count)
    ends = mono_ns + (number // CALLS) * ITERATION_NS + (number % CALLS + 1) * 2 * COMPUTE_NS
    jitter = np.random.default_rng(seed).integers(0, 200_000, count)
    starts = ends - CALL_NS - COMPUTE_NS + late_ns + jitter
    sizes = 4096 * (1 + number % CALLS)
    records = make_records(count, t_ns=starts, seq=number, comm=WORLD, bytes=sizes, host_ns=100_000, dtype=7)
    records["commit"] = number + 1
    if not timed:
        return records
    extra = as_timings(records, starts + 1000, ends - starts - 1000)
    extra["commit"] = count + 1 + number
    return np.concatenate([records, extra])


def write_dumps(folder, ranks=4, late=2, late_ns=40_000_000, timed=True, ahead_s=(0.0, 0.0), boots=2, run="0123abcd"):
    """Files of a job: half the ranks on each of two nodes, whose wall clocks are ahead by so many seconds."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for rank in range(ranks):
        node = rank * 2 // ranks
        boot = f"boot-{node % boots}"
        mono_ns = 10**12 * (1 + node % boots)  # machines were started at different times
        wall_ns = BEGIN_WALL_NS + round(ahead_s[node] * 1e9)
        writer = DumpWriter(header(rank, node, boot, mono_ns, wall_ns))
        writer.add(calls_of(late_ns if rank == late else 0, rank, timed, mono_ns), 0)
        path = folder / f"trace.{run}.node{node}.rank{rank}.pid{1000 + rank}.ghdump"
        writer.save(path, communicators(rank, ranks))
        paths.append(path)
    return SimpleNamespace(paths=paths, late=late, late_ns=late_ns)
