"""Readings of counters and gauges, and what they were over a stretch of time: `cause` compares it. No clock, no I/O.

A figure that could not be read is NaN in a reading and missing from evidence ("n/a"), never 0.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

GAUGE, FLAG, COUNTER = "gauge", "flag", "counter"
"""How a field is summed up: median; mean, the share of readings; growth a second (of seconds: share of the time)."""

REASONS: Mapping[str, tuple[int, str]] = {
    "idle": (1, "idle"),
    "user_clocks": (2, "clocks set by a user"),
    "power_cap": (4, "power cap"),
    "hw_slowdown": (8, "hardware slowdown"),
    "sync_boost": (16, "sync boost"),
    "sw_thermal": (32, "thermal slowdown by the driver"),
    "hw_thermal": (64, "thermal slowdown by the hardware"),
    "power_brake": (128, "power brake of the hardware"),
    "board_limit": (512, "board limit"),
    "reliability": (1024, "reliability limit"),
}
"""Why a GPU's clock is held down: bit of NVML's nvmlClocksEventReason*, words. A field `reason_NAME` each."""

FIELDS: Mapping[str, Mapping[str, str]] = {
    "node": {
        "psi_cpu_s": COUNTER,
        "psi_io_s": COUNTER,
        "psi_io_full_s": COUNTER,
        "psi_memory_s": COUNTER,
        "psi_memory_full_s": COUNTER,
        "busy_s": COUNTER,
        "iowait_s": COUNTER,
        "steal_s": COUNTER,
        "major_faults": COUNTER,
        "swapped_pages": COUNTER,
        "oom_kills": COUNTER,
        "disk_queue_s": COUNTER,
        "tcp_retransmits": COUNTER,
        "tcp_segments": COUNTER,
    },
    "rank": {
        "run_s": COUNTER,
        "wait_s": COUNTER,
        "throttled_s": COUNTER,
        "periods": COUNTER,
        "throttled_periods": COUNTER,
        "psi_cpu_s": COUNTER,
        "psi_io_s": COUNTER,
        "psi_memory_s": COUNTER,
        "major_faults": COUNTER,
        "io_delay_s": COUNTER,
        "read_bytes": COUNTER,
        "write_bytes": COUNTER,
        "cpu_mhz": GAUGE,
    },
    "gpu": {
        "sm_mhz": GAUGE,
        "sm_max_mhz": GAUGE,
        "memory_mhz": GAUGE,
        "memory_max_mhz": GAUGE,
        "temperature_c": GAUGE,
        "slowdown_c": GAUGE,
        "power_w": GAUGE,
        "power_limit_w": GAUGE,
        "busy_share": GAUGE,
        "memory_used_bytes": GAUGE,
        "pcie_generation": GAUGE,
        "pcie_width": GAUGE,
        "pcie_max_generation": GAUGE,
        "pcie_max_width": GAUGE,
        "nvlinks": GAUGE,
        "nvlink_version": GAUGE,
        "rows_pending": GAUGE,
        **{f"reason_{name}": FLAG for name in REASONS},
        "thermal_s": COUNTER,
        "power_s": COUNTER,
        "ecc_corrected": COUNTER,
        "ecc_uncorrected": COUNTER,
        "pcie_replays": COUNTER,
        "nvlink_errors": COUNTER,
    },
    "nic": {
        "gbit_s": GAUGE,
        "active": FLAG,
        "cnp_sent": COUNTER,
        "cnp_handled": COUNTER,
        "ecn_marked": COUNTER,
        "out_of_sequence": COUNTER,
        "sequence_errors": COUNTER,
        "timeouts": COUNTER,
        "retransmits": COUNTER,
        "no_buffer": COUNTER,
        "symbol_errors": COUNTER,
        "link_downs": COUNTER,
        "xmit_wait": COUNTER,
        "sent_bytes": COUNTER,
        "received_bytes": COUNTER,
    },
}
"""Fields by scope, in the order of a row. Where a scope has no names of its own (node) the name is empty."""

EDGE_NS = 60 * 10**9  # a window with less than two readings takes the nearest ones beside it, no further away
MOST_NAMES = 4096  # in a scope of a message
MOST_VALUES = 1800  # in a message
MOST_CHARACTERS = 200
_WAITS = ("wait_s", "throttled_s", "io_delay_s", "psi_cpu_s", "psi_io_s")
_LARGEST = 1e15  # bytes a second: beyond what any machine moves

Row = NDArray[np.float64]
Place = tuple[str, str]
"""Scope and name: ("gpu", "0000:65:00.0"), ("rank", "ring.17.234"), ("nic", "mlx5_0/1"), ("node", "")."""


def row(scope: str, values: Mapping[str, float]) -> Row:
    """A reading's figures in the order of FIELDS; NaN for those that are missing. KeyError for an unknown field."""
    made = np.full(len(FIELDS[scope]), np.nan)
    order = {name: place for place, name in enumerate(FIELDS[scope])}
    for name, value in values.items():
        made[order[name]] = value
    return made


@dataclass(frozen=True)
class Reading:
    """What one source read at a moment (ns of any one clock)."""

    t_ns: int
    rows: Mapping[Place, Row]


@dataclass(frozen=True)
class Evidence:
    """Figures of a stretch of time of one node, by scope, name and field; what isn't there is not known.

    `absent` says by source (linux, rdma, nvml, or `gpu BUS`) why nothing is known of it.
    """

    seconds: float
    values: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)

    def get(self, scope: str, name: str, field_name: str) -> float | None:
        """A figure, or None: n/a."""
        return self.values.get(scope, {}).get(name, {}).get(field_name)

    def names(self, scope: str) -> tuple[str, ...]:
        """What was read of a scope."""
        return tuple(self.values.get(scope, {}))


def summarise(
    readings: Iterable[Reading], begin_ns: int, end_ns: int, absent: Mapping[str, str] | None = None
) -> Evidence:
    """Readings in order of time, over a window of the same clock; places that were not read near it are left out."""
    series: dict[Place, tuple[list[int], list[Row]]] = {}
    for reading in readings:
        if begin_ns - EDGE_NS <= reading.t_ns <= end_ns + EDGE_NS:
            for place, figures in reading.rows.items():
                times, rows = series.setdefault(place, ([], []))
                times.append(reading.t_ns)
                rows.append(figures)
    values: dict[str, dict[str, dict[str, float]]] = {}
    for (scope, name), (times, rows) in series.items():
        chosen = _within(np.array(times), begin_ns, end_ns)
        summed = _figures(scope, np.array(times)[chosen], np.array(rows)[chosen])
        if summed:
            values.setdefault(scope, {})[name] = summed
    return Evidence(max(end_ns - begin_ns, 0) / 1e9, values, dict(absent or {}))


def _within(times: NDArray[np.int64], begin_ns: int, end_ns: int) -> slice:
    low = int(np.searchsorted(times, begin_ns, side="left"))
    high = int(np.searchsorted(times, end_ns, side="right"))
    if high - low < 2:
        low, high = max(low - 1, 0), min(high + 1, len(times))
    return slice(low, high)


def _figures(scope: str, times: NDArray[np.int64], rows: NDArray[np.float64]) -> dict[str, float]:
    figures = {}
    for place, (name, kind) in enumerate(FIELDS[scope].items()):
        value = _rate(times, rows[:, place]) if kind == COUNTER else _level(rows[:, place], kind)
        if math.isfinite(value):
            figures[name] = value
    return figures


def _level(values: Row, kind: str) -> float:
    known = values[np.isfinite(values)]
    if len(known) == 0:
        return math.nan
    return float(np.mean(known) if kind == FLAG else np.median(known))


def _rate(times: NDArray[np.int64], values: Row) -> float:
    """Growth a second; where a counter fell it began anew, and that step isn't counted."""
    known = np.isfinite(values)
    steps, took_s = np.diff(values[known]), np.diff(times[known]) / 1e9
    counted = (steps >= 0) & (took_s > 0)
    total_s = float(took_s[counted].sum())
    return float(steps[counted].sum()) / total_s if total_s > 0 else math.nan


def as_message(evidence: Evidence) -> dict[str, Any]:
    """As plain data for a message; `from_message` reads it back.

    At most about MOST_VALUES figures: of very many ranks those that waited most, for a CPU or a disk.
    """
    values = {
        scope: {name: _short(figures) for name, figures in names.items()} for scope, names in evidence.values.items()
    }
    left = MOST_VALUES - sum(len(figures) for scope in values if scope != "rank" for figures in values[scope].values())
    if "rank" in values:
        values["rank"] = dict(_most_telling(values["rank"], left))
    absent = {name: why[:MOST_CHARACTERS] for name, why in evidence.absent.items()}
    return {"seconds": evidence.seconds, "values": values, "absent": absent}


def _short(figures: Mapping[str, float]) -> dict[str, float]:
    return {name: float(f"{value:.6g}") for name, value in figures.items()}


def _most_telling(ranks: Mapping[str, dict[str, float]], most: int) -> Iterator[tuple[str, dict[str, float]]]:
    def waited(name: str) -> float:
        return max((ranks[name].get(field, 0.0) for field in _WAITS), default=0.0)

    for name in sorted(ranks, key=waited, reverse=True):
        most -= len(ranks[name])
        if most < 0:
            return
        yield name, ranks[name]


def from_message(value: Any) -> Evidence:
    """Check what a node sent; ValueError names the offending part. Scopes and fields of later releases are ignored."""
    if not isinstance(value, dict):
        raise ValueError("evidence: not an object")
    seconds = _number("seconds", value.get("seconds"))
    scopes = _object("values", value.get("values"))
    absent = {name: _words(f"absent {name}", why) for name, why in _object("absent", value.get("absent")).items()}
    return Evidence(seconds, {scope: _scope(scope, scopes[scope]) for scope in FIELDS if scope in scopes}, absent)


def _scope(scope: str, value: Any) -> dict[str, dict[str, float]]:
    names = {}
    for name, figures in _object(scope, value).items():
        table = _object(f"{scope} {name}", figures)
        names[name] = {
            key: _number(f"{scope} {name} {key}", figure) for key, figure in table.items() if key in FIELDS[scope]
        }
    return names


def _object(what: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or len(value) > MOST_NAMES:
        raise ValueError(f"evidence: {what}: not an object of at most {MOST_NAMES:,} members")
    for name in value:
        _words(f"a name in {what}", name)
    return value


def _number(what: str, value: Any) -> float:
    # The comparison holds neither for NaN nor for the infinities, and takes integers of any length.
    if isinstance(value, bool) or not isinstance(value, int | float) or not -_LARGEST <= value <= _LARGEST:
        raise ValueError(f"evidence: {what}: not a number from -{_LARGEST:g} to {_LARGEST:g}")
    return float(value)


def _words(what: str, value: Any) -> str:
    if not isinstance(value, str) or len(value) > MOST_CHARACTERS or not value.isprintable():
        raise ValueError(f"evidence: {what}: not a text of at most {MOST_CHARACTERS} printable characters")
    return value
