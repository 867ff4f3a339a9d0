"""What finding the period of two million calls costs, beside statsmodels' acf: python -m greyhound.bench.period."""

import argparse
import json
import resource
import subprocess
import sys
import time

import numpy as np

from greyhound.bench.output import Measured, report
from greyhound.detect.period import IterationClock

_CALLS = 2_000_000
_PUSHED = 5_000
_PERIODS = (1, 1_000, 65_000, 666_000)  # three of the longest are in the stream
_ACF_MATCH = 0.95  # the paper's M
_CALL_NS = 200_000


def _symbols(period: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """Calls of 100 kinds in random order, repeated; the last of each period is one of its own."""
    rng = np.random.default_rng(period)
    body = rng.integers(1, 2**63, 100, dtype=np.uint64)[rng.integers(0, 99, period)]
    body[-1] = 1
    return np.resize(body, _CALLS)


def _clock(period: int) -> tuple[int | None, float]:
    """The period that the clock finds, and its CPU seconds."""
    symbols = _symbols(period)
    clock, cpu_s = IterationClock(), 0.0
    for at in range(0, _CALLS, _PUSHED):
        t_ns = np.arange(at, at + _PUSHED, dtype=np.int64) * _CALL_NS
        begin = time.process_time()
        clock.push(symbols[at : at + _PUSHED], t_ns)
        cpu_s += time.process_time() - begin
    return clock.period, cpu_s


def _acf(period: int) -> tuple[int | None, float]:
    """The smallest lag at which the autocorrelation of the calls' numbers exceeds 0.95 (as in the paper), by FFT."""
    from statsmodels.tsa.stattools import acf

    _, numbers = np.unique(_symbols(period), return_inverse=True)
    begin = time.process_time()
    lags = _CALLS // 3 + 1
    high = np.flatnonzero(acf(numbers.astype(np.float64), nlags=lags, fft=True, adjusted=True)[1:] > _ACF_MATCH)
    return (int(high[0]) + 1 if len(high) else None), time.process_time() - begin


_METHODS = {"clock": _clock, "acf": _acf}


def _in_own_process(method: str, period: int) -> tuple[int | None, float, float]:
    """Found period, CPU s and peak memory (MB), measured in a process of its own."""
    command = [sys.executable, "-m", "greyhound.bench.period", "--one", method, str(period)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip().splitlines()[-1]}")
    found, cpu_s, peak_mb = json.loads(done.stdout)
    return found, cpu_s, peak_mb


def _one(method: str, period: int) -> None:
    found, cpu_s = _METHODS[method](period)
    print(json.dumps([found, cpu_s, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6]))


def measure() -> list[Measured]:
    """CPU time, memory and error of each period; the error is 1 if another period or none was found."""
    figures = []
    for period in _PERIODS:
        found, cpu_s, peak_mb = _in_own_process("clock", period)
        wrong = float(found != period)
        figures += [
            Measured(f"period {period:,}: CPU for two million calls", cpu_s, "s", 2, "less"),
            Measured(f"period {period:,}: memory, peak", peak_mb, "MB", 200, "less"),
            Measured(f"period {period:,}: not found", wrong, "", 0, "less"),
        ]
    return figures


def plain_alternative() -> list[str]:
    """The same with statsmodels' acf (the extra `bench`), for people."""
    rows = []
    for period in _PERIODS:
        found, cpu_s, peak_mb = _in_own_process("acf", period)
        rows.append(f"statsmodels acf, period {period:,}: found {found}, {cpu_s:.2f} s CPU, {peak_mb:.0f} MB")
    return rows


def main() -> None:
    """Measure all, or with --one a single method and period."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", nargs=2, metavar=("METHOD", "PERIOD"), help="only clock or acf, on one period")
    arguments = parser.parse_args()
    if arguments.one:
        _one(arguments.one[0], int(arguments.one[1]))
        return
    report("period", measure())
    for row in plain_alternative():
        print(row, flush=True)


if __name__ == "__main__":
    main()
