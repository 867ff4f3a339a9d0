"""What every training of the sandbox shares: the process's GPU, the world's process group, what is said and the end."""

import json
import os
import statistics
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TextIO

from greyhound.sandbox import ranks, torch_backend

RENDEZVOUS_TIMEOUT_S = 600
WARM_UP_ITERATIONS = 3


class Device:
    """This process's GPU: the stand-in's stream, or nothing with gloo."""

    def __init__(self, native: Any, layer_s: float) -> None:
        self._native = native
        self.layer_s = layer_s if native is not None else 0.0

    def enqueue(self, work_s: float) -> None:
        """Enqueue modelled device time that begins now or when the stream is free."""
        if self._native is not None and work_s > 0:
            self._native.device_time(work_s)

    def synchronize(self) -> None:
        """Wait until all modelled device time has passed."""
        if self._native is not None:
            self._native.synchronize()


def start(me: ranks.RankEnvironment, backend: str, layer_s: float) -> Device:
    """Choose the GPU, register the backend and initialise the world's process group.

    `backend` is "greyhound" (the stand-in) or "gloo"; `layer_s` the modelled forward time of a layer, in seconds.
    """
    if backend == torch_backend.BACKEND_NAME:
        torch_backend.preload_runtime()
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    native = None
    if backend == torch_backend.BACKEND_NAME:
        native = torch_backend.register()
        torch_backend.choose_device(native, me.local_rank)
    timeout = timedelta(seconds=RENDEZVOUS_TIMEOUT_S)
    # torchrun's agent may keep the store already; then every rank is a client of it.
    agent_store = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store = dist.TCPStore(
        me.master_address, me.master_port, me.world_size, is_master=me.rank == 0 and not agent_store, timeout=timeout
    )
    store = dist.PrefixStore(f"train/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    dist.init_process_group(backend, store=store, rank=me.rank, world_size=me.world_size, timeout=timeout)
    return Device(native, layer_s)


def finish() -> None:
    """Leave together, so that no rank closes its connections while another still uses them."""
    import torch.distributed as dist

    dist.barrier()
    dist.destroy_process_group()


@contextmanager
def at_once_on_failure() -> Iterator[None]:
    """End a failing process without the interpreter's clean-up, which would wait for peers that wait for it.

    Its connections close with it, and that makes the peers fail too instead of waiting for ever.
    """
    done = False
    try:
        yield
        done = True
    finally:
        if not done:
            traceback.print_exc()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(1)


def _summary(times_s: Sequence[float], modelled_s: float) -> str:
    """The last line: median and spread of the iteration time, and the modelled share of it at full speed."""
    settled = times_s[WARM_UP_ITERATIONS:] or times_s
    median = statistics.median(settled)
    spread = statistics.pstdev(settled) / median
    return (
        f"done: median iteration {median:.4f} s, standard deviation {spread:.1%}, "
        f"modelled at full speed {modelled_s / median:.1%}"
    )


@dataclass
class Report:
    """What the printing rank says: a line on the terminal and a JSON line for machines; it also keeps the time."""

    steps: int
    speaks: bool
    log: TextIO | None = None
    _times_s: list[float] = field(default_factory=list)
    _before_s: float = field(default_factory=time.monotonic)

    def say(self, text: str) -> None:
        """Print on the one rank that speaks."""
        if self.speaks:
            print(text, flush=True)

    def iteration(self, number: int, loss: float) -> None:
        """One iteration ended now: its loss in full precision and its time."""
        now_s = time.monotonic()
        time_s, self._before_s = now_s - self._before_s, now_s
        self._times_s.append(time_s)
        self.say(
            f"iteration {number}/{self.steps} loss {loss:.6f} time_s {time_s:.6f} "
            f"loss_hex {loss.hex()} unix_s {time.time():.3f}"
        )
        if self.speaks and self.log is not None:
            record = {"iteration": number, "loss": loss, "loss_hex": loss.hex(), "time_s": time_s}
            self.log.write(json.dumps({**record, "end_ns": time.monotonic_ns()}) + "\n")
            self.log.flush()

    def summary(self, modelled_s: float) -> None:
        """Say the last line; `modelled_s` is the modelled part of an iteration at full speed."""
        self.say(_summary(self._times_s, modelled_s))
