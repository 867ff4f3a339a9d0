"""What the hook adds to a call: python -m greyhound.bench.hook (in the repository, with a C compiler)."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from greyhound.bench.output import Measured, report

REPOSITORY = Path(__file__).resolve().parents[2]
_NATIVE_TESTS = REPOSITORY / "tests" / "hook" / "native"
HOOK = REPOSITORY / "greyhound" / "_native" / "libgreyhound_hook.so"
_ROUND_CALLS = 20_000
_PAIRS = 7
_PROFILE_BUDGET, _UNBOUNDED = 1300, (1 << 32) - 1
_ITERATIONS, _ITERATION_CALLS = 20, 500
_STREAMS = (
    # what it stands for, ns between calls, bytes that are walked through between them
    ("calls back to back", 0, 0),
    ("5,000 calls/s, 1 MiB walked through between them", 200_000, 1 << 20),
)


@dataclass(frozen=True)
class Stream:
    """Calls past the hook or through it: percentiles and mean of a call, median of an iteration's sum, all in ns."""

    p50_ns: float
    p99_ns: float
    p999_ns: float
    mean_ns: float
    iteration_ns: float


def build(folder: Path) -> None:
    """Compile the timing programs and the NCCL that does nothing; CalledProcessError if the compiler fails."""
    compiler = shutil.which(os.environ.get("CC", "cc")) or "cc"
    libraries = []
    for null, library in (("null_nccl.c", "libnccl.so.2"), ("null_cudart.c", "libcudart.so.12")):
        libraries.append(str(folder / library))
        options = ["-O2", "-fPIC", "-shared", f"-Wl,-soname,{library}", "-o", libraries[-1]]
        subprocess.run([compiler, *options, str(_NATIVE_TESTS / null)], check=True)
    for name in ("bench_call", "bench_stream"):
        source = REPOSITORY / "hook" / f"{name}.c"
        linked = [compiler, "-O2", "-pthread", "-D_GNU_SOURCE", "-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN"]
        subprocess.run([*linked, "-o", str(folder / name), str(source), *libraries], check=True)


@contextlib.contextmanager
def step_directory() -> Iterator[Path]:
    """A step directory for one run. The hook empties and removes it at the exit, as nobody has it locked."""
    with tempfile.TemporaryDirectory(prefix="greyhound-bench-", dir="/dev/shm") as folder:
        yield Path(folder) / "step"


def run(program: Path, *arguments: object, step_dir: Path | None = None) -> list[list[float]]:
    """The numbers that a program prints, by line; with `step_dir` under the hook."""
    environment = {key: value for key, value in os.environ.items() if key not in ("LD_PRELOAD", "GREYHOUND_DIR")}
    if step_dir is not None:
        environment |= {"LD_PRELOAD": str(HOOK), "GREYHOUND_DIR": str(step_dir)}
    command = [str(program), *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return [[float(word) for word in line.split()] for line in done.stdout.splitlines()]


def pair(program: Path, threads: int) -> tuple[float, float]:
    """Best round of a run in ns a call, without and with the hook: the medians of runs taken in turn."""
    without, under = [], []
    for _ in range(_PAIRS):
        without.append(run(program, _ROUND_CALLS, threads)[0][0])
        with step_directory() as step_dir:
            under.append(run(program, _ROUND_CALLS, threads, step_dir=step_dir)[0][0])
    return sorted(without)[_PAIRS // 2], sorted(under)[_PAIRS // 2]


def best_rounds(folder: Path) -> list[Measured]:
    """Nanoseconds a call in a tight loop; two threads share one ring."""
    figures = []
    for threads, target in ((1, 100.0), (2, 200.0)):
        without, under = pair(folder / "bench_call", threads)
        name = f"hook, {threads} thread{'s' if threads > 1 else ''}"
        text = f"{name}: a call takes {without:.1f} ns without, {under:.1f} ns with; added"
        figures.append(Measured(text, under - without, "ns", target, "less"))
    return figures


@dataclass(frozen=True)
class StreamRun:
    """Past the hook, through it, and meanwhile: page faults, and brackets made a second by profiling."""

    past: Stream
    through: Stream
    faults: int
    brackets_per_s: float


def stream(folder: Path, gap_ns: int, chill_bytes: int, *mode: str) -> StreamRun:
    """Iterations past the hook and through it in turn, within one run; ``mode``: muted, or a profile word."""
    with step_directory() as step_dir:
        arguments = (_ITERATIONS, _ITERATION_CALLS, gap_ns, chill_bytes, *mode)
        past, through, faults, brackets = run(folder / "bench_stream", *arguments, step_dir=step_dir)
    return StreamRun(Stream(*past), Stream(*through), int(sum(faults)), brackets[0])


def streams(folder: Path) -> list[Measured]:
    """The tail of a call, the time stolen from an iteration, and page faults, of each stream."""
    figures = []
    for name, gap_ns, chill_bytes in _STREAMS:
        found = stream(folder, gap_ns, chill_bytes)
        figures += tails(name, found.past, found.through) + stolen(name, found.past, found.through)
        figures.append(Measured(f"hook, {name}: page faults after the warm-up", found.faults, "", 0.0, "less"))
        muted = stream(folder, gap_ns, chill_bytes, "muted")
        text = f"hook muted, {name}: median added"
        figures.append(Measured(text, muted.through.p50_ns - muted.past.p50_ns, "ns", 100.0, "less"))
    return figures


def profile_word(budget_per_s: int) -> str:
    """Time every call, within the budget (GH_OFF_PROFILE)."""
    return f"{1 << 48 | 1 << 32 | budget_per_s:x}"


def profiling(folder: Path) -> list[Measured]:
    """What the hook itself takes for timing calls on the GPU; CUDA's events, here done at once, come on top."""
    name, gap_ns, chill_bytes = _STREAMS[1]
    off = stream(folder, gap_ns, chill_bytes)
    on = stream(folder, gap_ns, chill_bytes, profile_word(_PROFILE_BUDGET))
    whole_ns = _ITERATION_CALLS * gap_ns
    share = (on.through.iteration_ns - off.through.iteration_ns) / whole_ns * 100
    brackets = on.brackets_per_s / _PROFILE_BUDGET
    text = f"hook, profiling {name}: {on.brackets_per_s:.0f} brackets/s; of its budget of {_PROFILE_BUDGET}"
    with step_directory() as step_dir:
        each = run(folder / "bench_call", _ROUND_CALLS, 1, profile_word(_UNBOUNDED), step_dir=step_dir)[0][0]
    with step_directory() as step_dir:
        none = run(folder / "bench_call", _ROUND_CALLS, 1, step_dir=step_dir)[0][0]
    bracketed = f"hook, profiling: a call takes {none:.1f} ns, put between events {each:.1f} ns; added"
    return [
        Measured(bracketed, each - none, "ns", 1000.0, "less"),
        Measured(text, brackets, "", 1.05, "less"),
        Measured(f"hook, profiling {name}: of the iteration's time", share, "%", 0.4, "less"),
    ]


def tails(name: str, past: Stream, through: Stream) -> list[Measured]:
    """What the slowest call of 100 and of 1,000 has more with the hook."""
    figures = []
    for percentile, without, under in (
        ("99th", past.p99_ns, through.p99_ns),
        ("99.9th", past.p999_ns, through.p999_ns),
    ):
        text = f"hook, {name}: {percentile} percentile {without:.0f} ns past it, {under:.0f} ns through it; added"
        figures.append(Measured(text, (under - without) / 1e3, "us", 2.0, "less"))
    return figures


def stolen(name: str, past: Stream, through: Stream) -> list[Measured]:
    """From an iteration: as the median difference of the sums, and as calls times the median that a call adds."""
    whole_us = (through.iteration_ns - past.iteration_ns) / 1e3
    calls_us = _ITERATION_CALLS * (through.p50_ns - past.p50_ns) / 1e3
    ratio = through.iteration_ns / past.iteration_ns
    text = f"hook, {name}: an iteration of {_ITERATION_CALLS} calls, {ratio:.1f} times the time in calls; stolen"
    by_calls = f"hook, {name}: {_ITERATION_CALLS} calls times what the median call adds"
    return [Measured(text, whole_us, "us", 50.0, "less"), Measured(by_calls, calls_us, "us", 50.0, "less")]


def measure() -> list[Measured]:
    """All figures; the programs are built anew."""
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder))
        return best_rounds(Path(folder)) + streams(Path(folder)) + profiling(Path(folder))


if __name__ == "__main__":
    report("hook", measure())
