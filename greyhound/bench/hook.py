"""What the hook adds to a call: python -m greyhound.bench.hook (in the repository, with a C compiler)."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from greyhound.bench.output import Measured, report

REPOSITORY = Path(__file__).resolve().parents[2]
HOOK = REPOSITORY / "greyhound" / "_native" / "libgreyhound_hook.so"
_ROUND_CALLS = 20_000
_PAIRS = 7


def build(folder: Path) -> Path:
    """Compile the timing program and the NCCL that does nothing; CalledProcessError if the compiler fails."""
    compiler = shutil.which(os.environ.get("CC", "cc")) or "cc"
    nccl, program = folder / "libnccl.so.2", folder / "bench_call"
    null_nccl = REPOSITORY / "tests" / "hook" / "native" / "null_nccl.c"
    shared = [compiler, "-O2", "-fPIC", "-shared", "-Wl,-soname,libnccl.so.2", "-o", str(nccl), str(null_nccl)]
    source = REPOSITORY / "hook" / "bench_call.c"
    linked = [compiler, "-O2", "-pthread", "-D_GNU_SOURCE", "-o", str(program), str(source), str(nccl)]
    subprocess.run(shared, check=True)
    subprocess.run([*linked, "-Wl,-rpath,$ORIGIN"], check=True)
    return program


def nanoseconds(program: Path, threads: int, step_dir: Path | None) -> float:
    """One run's best round, in ns a call; with `step_dir` under the hook."""
    environment = {key: value for key, value in os.environ.items() if key not in ("LD_PRELOAD", "GREYHOUND_DIR")}
    if step_dir is not None:
        environment |= {"LD_PRELOAD": str(HOOK), "GREYHOUND_DIR": str(step_dir)}
    command = [str(program), str(_ROUND_CALLS), str(threads)]
    return float(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


def pair(program: Path, threads: int) -> tuple[float, float]:
    """Without and with the hook, each the median of runs taken in turn."""
    without, under = [], []
    for _ in range(_PAIRS):
        without.append(nanoseconds(program, threads, None))
        with tempfile.TemporaryDirectory(prefix="greyhound-bench-", dir="/dev/shm") as step_dir:
            under.append(nanoseconds(program, threads, Path(step_dir)))
    return sorted(without)[_PAIRS // 2], sorted(under)[_PAIRS // 2]


def measure() -> list[Measured]:
    """Nanoseconds a call; the target is for one thread, two threads share one ring."""
    figures = []
    with tempfile.TemporaryDirectory() as folder:
        program = build(Path(folder))
        for threads, target in ((1, 100.0), (2, 200.0)):
            without, under = pair(program, threads)
            name = f"hook, {threads} thread{'s' if threads > 1 else ''}"
            figures.append(
                Measured(
                    f"{name}: a call takes {without:.1f} ns without, {under:.1f} ns with; added",
                    under - without,
                    "ns",
                    target,
                    "less",
                )
            )
    return figures


if __name__ == "__main__":
    report("hook", measure())
