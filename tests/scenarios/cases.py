"""The frameworks and ways to start that the compatibility table is made of."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

TEMPLATES = Path(__file__).resolve().parents[2] / "sbatch_templates"


@dataclass(frozen=True)
class Case:
    """One job: `script` is a template of ours or a batch script's text, in which TRAIN is the training's command.

    The GPU `gpu` is made slow after `healthy` iterations of `steps`; `neighbour` is how a second job beside it comes
    about: `array` (its other task), `twin` (the same script on the same nodes) or nothing. With `verdict` the GPU stays
    slow until Greyhound has said what is to blame.
    """

    key: str
    group: str
    title: str
    script: str = 'srun "${TRAIN[@]}"'
    train: Sequence[str] = ("train_ddp",)
    sbatch: Sequence[str] = ("-N2", "-wn1,n2", "--ntasks-per-node=1")
    nodes: int = 2
    ranks: int = 2
    gpu: str = "n2:0"
    steps: int = 72
    healthy: int = 32
    layer_ms: float = 15.0
    neighbour: str = ""
    verdict: bool = False

    @property
    def template(self) -> Path | None:
        """The batch template, where it is one."""
        return TEMPLATES / self.script if self.script.endswith(".sbatch") else None


def shortened(case: Case) -> Case:
    """For `make test`: two ranks, which two cores carry in less time an iteration; all else is the same."""
    alone = tuple("--ntasks-per-node=1" if option == "--ntasks-per-node=2" else option for option in case.sbatch)
    return replace(case, sbatch=alone, ranks=2, layer_ms=case.layer_ms / 2, steps=60 + 70 * case.verdict, healthy=24)


FOUR = ("-N2", "-wn1,n2", "--ntasks-per-node=2")
PAUSES = ("--evaluate-every", "12", "--checkpoint-every", "25", "--checkpoint-s", "1")
TORCHRUN = (
    'srun torchrun --nnodes="$SLURM_NNODES" --nproc-per-node=2 --rdzv-backend=c10d '
    '--rdzv-endpoint="127.0.0.1:$MASTER_PORT" --rdzv-id="$SLURM_JOB_ID" "${TRAIN[@]:1}"'
)
SHIM = f"""\
mkdir -p "$WORK/shim"
printf '#!/bin/sh\\nexec {sys.executable} "$@"\\n' > "$WORK/shim/python"
chmod +x "$WORK/shim/python"
PATH="$WORK/shim:$PATH" srun python "${{TRAIN[@]:1}}"
"""
# What a conda or a module leaves behind: names that our own processes import or link, but the training doesn't.
HOSTILE = f"""\
mkdir -p "$WORK/hostile"
for name in redis click rich; do echo 'raise SystemError("not yours")' > "$WORK/hostile/$name.py"; done
for name in libhiredis.so.0.14 libjemalloc.so.2 liblua5.1.so.0 liblzf.so.1; do echo bad > "$WORK/hostile/$name"; done
export PYTHONPATH="$WORK/hostile" PYTHONHOME=/nonexistent LD_LIBRARY_PATH="$WORK/hostile"
srun bash -c 'unset PYTHONHOME; exec {sys.executable} "$@"' bash "${{TRAIN[@]:1}}"
"""
OVERLAP = """\
srun --overlap "${TRAIN[@]}" &
training=$!
sleep 5
srun --overlap --ntasks-per-node=1 bash -c 'while [ ! -e "$WORK/done" ]; do uptime; sleep 1; done' > /dev/null &
wait "$training"
code=$?
touch "$WORK/done"
wait
exit "$code"
"""
ONE_GPU = ("-N2", "-wn1,n2", "--ntasks-per-node=1", "--gres=gpu:1")

FRAMEWORKS = [
    Case(
        "megatron", "framework", "Megatron-core, TP2 DP2 PP2", "megatron.sbatch",
        ("train", "--tp", "2", "--pp", "2"), (), nodes=4, ranks=8, gpu="n3:1", layer_ms=20.0,
    ),
    Case("ddp", "framework", "DDP with `no_sync`, evaluations and checkpoints", "megatron.sbatch",
         ("train_ddp", *PAUSES), FOUR, ranks=4),
    Case("fsdp2", "framework", "FSDP2 (`fully_shard`)", "megatron.sbatch", ("train_fsdp2",), FOUR, ranks=4),
    Case("fsdp2-loss-5", "framework", "FSDP2, the loss every 5 iterations", "megatron.sbatch",
         ("train_fsdp2", "--loss-every", "5"), FOUR, ranks=4),
    Case("hsdp", "framework", "HSDP (`fully_shard`, 2 x 2)", "megatron.sbatch", ("train_hsdp",), FOUR, ranks=4),
    Case("moe", "framework", "all-to-all (MoE, EP2 DP2), evaluations", "megatron.sbatch",
         ("train_moe", "--evaluate-every", "12"), FOUR, ranks=4),
]  # fmt: skip
STARTS = [
    Case("task-a-gpu", "start", "`srun`, one task a GPU"),
    Case("srun-torchrun", "start", "`srun torchrun`, one task a node", TORCHRUN, ranks=4),
    Case("bash-c", "start", "`srun bash -c '...'`", """srun bash -c 'cd / && "$@"; exit $?' bash "${TRAIN[@]}\""""),
    Case("env", "start", "`srun env VAR=1 python`", 'srun env VAR=1 "${TRAIN[@]}"'),
    Case("numactl", "start", "`srun numactl`", 'srun numactl --localalloc "${TRAIN[@]}"'),
    Case("shim", "start", "`python` is a shell script", SHIM),
    Case("launch-torchrun", "start", "`greyhound launch -- torchrun` in the batch script", "torchrun.sbatch",
         sbatch=("-wn2",), nodes=1, steps=110, verdict=True),
    Case("hostile", "start", "hostile PYTHONPATH, PYTHONHOME, LD_LIBRARY_PATH", HOSTILE),
    Case("overlap", "start", "an `--overlap` step beside it", OVERLAP),
    Case("array", "start", "a job array of two", sbatch=("-N1", "--ntasks-per-node=2", "--gres=gpu:2", "--array=0-1"),
         nodes=1, gpu="", neighbour="array"),
    Case("twins", "start", "two jobs on the same nodes", sbatch=ONE_GPU, neighbour="twin"),
]  # fmt: skip
CASES = [*FRAMEWORKS, *STARTS]
KEYS = [case.key for case in CASES]
