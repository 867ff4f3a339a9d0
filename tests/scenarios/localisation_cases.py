"""The faults by which the passive verdict is measured: which job, what is injected, and who may be named for it."""

from dataclasses import dataclass

Fault = tuple[str, ...]
"""Arguments of `greyhound inject`."""


@dataclass(frozen=True)
class Layout:
    """One job: the training and its options, where it runs, and which rank each GPU has (in the order of ranks)."""

    key: str
    title: str
    train: tuple[str, ...]
    sbatch: tuple[str, ...]
    gpus: tuple[str, ...]

    def rank(self, gpu: str) -> int:
        """The rank on a GPU (NODE:INDEX)."""
        return self.gpus.index(gpu)


@dataclass(frozen=True)
class Culprit:
    """A component that was made slow: kinds it may be called, and its GPUs (a link: both ends; a node's CPU: all).

    No GPUs: what everybody shares, so that no node may be named.
    """

    kinds: frozenset[str]
    gpus: tuple[str, ...]


@dataclass(frozen=True)
class Case:
    """One line of the table. `before`: injected before the job starts; `reported`: a fail-slow is expected.

    `culprits` empty: nobody may be named. `watch_s`: where nothing need be reported, how long it is looked for.
    """

    key: str
    layout: str
    title: str
    faults: tuple[Fault, ...]
    culprits: tuple[Culprit, ...] = ()
    before: bool = False
    reported: bool = True
    watch_s: float = 40.0
    options: tuple[str, ...] = ()
    hangs: bool = False

    @property
    def job(self) -> str:
        """Cases of one key share a job."""
        alone = self.before or bool(self.options)
        return f"{self.layout}/{self.key}" if alone else self.layout


FOUR_NODES = tuple(f"n{node}:{gpu}" for node in (1, 2, 3, 4) for gpu in (0, 1))
TWO_NODES = FOUR_NODES[:4]
LAYOUTS = {
    one.key: one
    for one in (
        Layout("tp2dp2pp2", "Megatron TP2 DP2 PP2", ("train", "--tp", "2", "--pp", "2"), (), FOUR_NODES),
        Layout("dp4pp2", "Megatron DP4 PP2", ("train", "--pp", "2"), (), FOUR_NODES),
        Layout("fsdp2", "FSDP2, 4 ranks", ("train_fsdp2", "--layer-ms", "20"), ("-N2", "-wn1,n2"), TWO_NODES),
    )
}


def _of(kinds: str, *gpus: str) -> Culprit:
    return Culprit(frozenset(kinds.split()), gpus)


def _gpu(gpu: str, speed: float) -> Fault:
    return ("gpu", gpu, "--speed", f"{speed:g}")


def _link(one: str, other: str, *limits: str) -> Fault:
    return ("link", one, other, *limits)


def _slow_gpus(layout: str, gpu: str, other: str) -> list[Case]:
    return [
        Case(f"{layout}-gpu-{speed * 100:.0f}", layout, f"one GPU at {speed:g}", (_gpu(name, speed),),
             (_of("gpu", name),))
        for name, speed in ((gpu, 0.67), (other, 0.5))
    ]  # fmt: skip


def _hosts(layout: str, node: str, gpu: str) -> list[Case]:
    gpus = tuple(name for name in LAYOUTS[layout].gpus if name.startswith(f"{node}:"))
    return [
        Case(f"{layout}-cpu", layout, "CPU quota on one node's ranks", (("cpu", node, "--quota", "0.08"),),
             (_of("cpu", *gpus),)),
        Case(f"{layout}-input", layout, "one rank's data loader slow", (("input", gpu, "--delay", "0.4s"),),
             (_of("input", gpu),)),
        Case(f"{layout}-storage", layout, "all ranks slow on checkpoints", (("storage", "--delay", "0.4s"),),
             (_of("storage input"),)),
    ]  # fmt: skip


def _alone(layout: str, gpu: str) -> list[Case]:
    """What needs a job of its own."""
    return [
        Case(f"{layout}-start", layout, "one GPU at 0.9 from the start", (_gpu(gpu, 0.9),), (_of("gpu", gpu),),
             before=True, reported=False),
        Case(f"{layout}-ragged", layout, "ragged sequence lengths", (), reported=False, watch_s=45.0,
             options=("--ragged", "0.3")),
    ]  # fmt: skip


CASES = [
    *_slow_gpus("tp2dp2pp2", "n2:1", "n3:0"),
    Case("tp2dp2pp2-two-gpus", "tp2dp2pp2", "two GPUs of different stages at 0.67",
         (_gpu("n1:0", 0.67), _gpu("n4:1", 0.67)), (_of("gpu", "n1:0"), _of("gpu", "n4:1"))),
    Case("tp2dp2pp2-dp-link", "tp2dp2pp2", "link of a DP pair",
         (_link("n1:0", "n2:0", "--bandwidth", "250kB/s"),), (_of("link", "n1:0", "n2:0"),)),
    Case("tp2dp2pp2-pp-link", "tp2dp2pp2", "link of a PP pair",
         (_link("n1:0", "n3:0", "--bandwidth", "500kB/s"),), (_of("link", "n1:0", "n3:0"),)),
    Case("tp2dp2pp2-pp-one-way", "tp2dp2pp2", "link of a PP pair, one direction",
         (_link("n2:1", "n4:1", "--bandwidth", "400kB/s", "--one-way"),), (_of("link", "n2:1", "n4:1"),)),
    Case("tp2dp2pp2-gpu-link", "tp2dp2pp2", "a GPU at 0.67 and the link of a DP pair",
         (_gpu("n3:0", 0.67), _link("n1:1", "n2:1", "--bandwidth", "250kB/s")),
         (_of("gpu", "n3:0"), _of("link", "n1:1", "n2:1"))),
    *_hosts("tp2dp2pp2", "n2", "n1:1"),
    Case("tp2dp2pp2-nothing", "tp2dp2pp2", "nothing", (), reported=False),
    Case("tp2dp2pp2-pause", "tp2dp2pp2", "one checkpoint of 15 s on all ranks", (("storage", "--delay", "15s"),),
         reported=False, watch_s=16.0),
    Case("tp2dp2pp2-hang", "tp2dp2pp2", "a hung rank", (("hang", "n2:1"),), (_of("hang", "n2:1"),),
         reported=False, hangs=True, watch_s=100.0),
    *_alone("tp2dp2pp2", "n4:0"),
    Case("tp2dp2pp2-all-gpus", "tp2dp2pp2", "all GPUs at 0.8 against an earlier run", (_gpu("all", 0.8),),
         (_of("gpu unknown"),), before=True, reported=False),
    *_slow_gpus("dp4pp2", "n1:1", "n3:1"),
    Case("dp4pp2-two-gpus", "dp4pp2", "two GPUs of different stages at 0.67",
         (_gpu("n1:0", 0.67), _gpu("n4:1", 0.67)), (_of("gpu", "n1:0"), _of("gpu", "n4:1"))),
    Case("dp4pp2-dp-link", "dp4pp2", "link of a DP group of four",
         (_link("n1:1", "n2:0", "--bandwidth", "1MB/s"),), (_of("link", "n1:1", "n2:0"),)),
    Case("dp4pp2-pp-one-way", "dp4pp2", "link of a PP pair, one direction",
         (_link("n1:1", "n3:1", "--bandwidth", "400kB/s", "--one-way"),), (_of("link", "n1:1", "n3:1"),)),
    Case("dp4pp2-gpu-link", "dp4pp2", "a GPU at 0.67 and the link of a PP pair",
         (_gpu("n3:0", 0.67), _link("n2:1", "n4:1", "--bandwidth", "500kB/s")),
         (_of("gpu", "n3:0"), _of("link", "n2:1", "n4:1"))),
    *_hosts("dp4pp2", "n3", "n2:0"),
    Case("dp4pp2-nothing", "dp4pp2", "nothing", (), reported=False),
    *_alone("dp4pp2", "n2:0"),
    *_slow_gpus("fsdp2", "n1:0", "n2:1"),
    Case("fsdp2-link", "fsdp2", "link of the sharding group",
         (_link("n1:1", "n2:0", "--bandwidth", "4MB/s"),), (_of("link", "n1:1", "n2:0"),)),
    Case("fsdp2-link-one-way", "fsdp2", "link of the sharding group, one direction",
         (_link("n1:1", "n2:0", "--bandwidth", "3MB/s", "--one-way"),), (_of("link", "n1:1", "n2:0"),)),
    *_hosts("fsdp2", "n2", "n1:1")[:2],
    Case("fsdp2-nothing", "fsdp2", "nothing", (), reported=False),
    Case("fsdp2-hang", "fsdp2", "a hung rank", (("hang", "n1:1"),), (_of("hang", "n1:1"),),
         reported=False, hangs=True, watch_s=100.0),
    *_alone("fsdp2", "n2:0"),
]  # fmt: skip
KEYS = [case.key for case in CASES]
