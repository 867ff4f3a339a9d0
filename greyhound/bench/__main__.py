"""All benchmarks in one run, each in a process of its own: python -m greyhound.bench."""

import subprocess
import sys

_NAMES = (
    "hook",
    "reader",
    "analyzer",
    "tracker",
    "many_ranks",
    "evidence",
    "training",
    "profiling",
    "profiles",
    "period",
    "period_fuzz",
)
_BENCHES = tuple(f"greyhound.bench.{name}" for name in _NAMES)


def main() -> int:
    """Run them one after the other; 0 if all ran, whatever they measured."""
    return max(subprocess.run([sys.executable, "-m", name]).returncode for name in _BENCHES)


if __name__ == "__main__":
    sys.exit(main())
