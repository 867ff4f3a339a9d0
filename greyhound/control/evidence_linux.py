"""Evidence of the ranks' processes and of their node, from /proc and the cgroup file systems.

A rank has many threads (hundreds in a training), so only its busiest few are read each time; which these are is looked
up once a minute, for some ranks a round. What the kernel doesn't count here is n/a.
"""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from greyhound.control.evidence_cgroup import Cgroups
from greyhound.control.evidence_files import Target, difference, listed, number, pressure, read_text, scaled, table
from greyhound.localize.cause_evidence import Place, Row, row

RANKS_A_ROUND = 64  # of more, each round reads a part
BUSY_THREADS = 4
LOOKS_A_ROUND = 4  # ranks whose threads are all looked at
LOOK_ROUNDS = 12  # between two looks at one rank
MOST_THREADS = 1024
_TICKS = os.sysconf("SC_CLK_TCK")
_MAJOR_FAULTS, _PROCESSOR, _IO_DELAY = 9, 36, 39  # of /proc/PID/stat, behind the name


@dataclass
class _Rank:
    """What is known of a rank's threads: nanoseconds on a CPU and waiting for one, when last read."""

    pid: int
    threads: tuple[str, ...] = ()
    last: dict[str, tuple[float, float]] = field(default_factory=dict)
    run_s: float = 0.0
    wait_s: float = 0.0
    look_due: int = 0


class LinuxSource:
    """Reads below `root` (tests have a tree of their own)."""

    name = "linux"

    def __init__(self, root: Path = Path("/")) -> None:
        self._proc = root / "proc"
        self._cpus = root / "sys/devices/system/cpu"
        self._cgroups = Cgroups(root)
        self._ranks: dict[str, _Rank] = {}
        self._counts_io_delay = False
        self._round = 0
        self._next = 0

    def read(self, targets: tuple[Target, ...]) -> tuple[Mapping[Place, Row], Mapping[str, str]]:
        """The node's figures and those of the next ranks in turn."""
        self._round += 1
        keys = {target.key for target in targets}
        self._ranks = {key: rank for key, rank in self._ranks.items() if key in keys}
        rows: dict[Place, Row] = {("node", ""): row("node", self._node())}
        self._cgroups.begin_round()
        self._counts_io_delay = read_text(self._proc / "sys/kernel/task_delayacct").strip() != "0"
        looks = LOOKS_A_ROUND
        for target in self._turn(targets):
            rank = self._ranks.setdefault(target.key, _Rank(target.pid))
            if rank.pid != target.pid:
                rank = self._ranks[target.key] = _Rank(target.pid)
            if looks and self._round >= rank.look_due:
                looks -= 1
                rank.look_due = self._round + LOOK_ROUNDS
                self._look(rank)
            figures = self._rank(rank)
            if figures:
                rows["rank", target.key] = row("rank", figures)
        absent = {} if (self._proc / "pressure/cpu").exists() else {"psi": "this kernel has no /proc/pressure/cpu"}
        return rows, absent

    def _turn(self, targets: tuple[Target, ...]) -> tuple[Target, ...]:
        if len(targets) <= RANKS_A_ROUND:
            return targets
        begin = self._next % len(targets)
        self._next = begin + RANKS_A_ROUND
        return (targets + targets)[begin : begin + RANKS_A_ROUND]

    # -- one rank -----------------------------------------------------------------------------------

    def _look(self, rank: _Rank) -> None:
        """Choose the threads that were busiest so far; the first one is always among them."""
        process = self._proc / str(rank.pid)
        names = listed(process / "task")[:MOST_THREADS]
        busy = sorted(names, key=lambda name: sum(_schedule(process, name)), reverse=True)
        rank.threads = tuple(dict.fromkeys([*busy[:BUSY_THREADS], str(rank.pid)]))
        rank.last = {name: times for name, times in rank.last.items() if name in rank.threads}

    def _rank(self, rank: _Rank) -> dict[str, float]:
        process = self._proc / str(rank.pid)
        status = _behind_name(read_text(process / "stat"))
        if len(status) <= _IO_DELAY:
            return {}
        figures = self._threads(rank, process) | scaled(
            _with_colons(read_text(process / "io")),
            {"read_bytes": ("read_bytes", 1.0), "write_bytes": ("write_bytes", 1.0)},
        )
        figures["major_faults"] = number(status[_MAJOR_FAULTS])
        if self._counts_io_delay:
            figures["io_delay_s"] = number(status[_IO_DELAY]) / _TICKS
        figures["cpu_mhz"] = self._mhz(status[_PROCESSOR])
        return figures | self._cgroups.figures(read_text(process / "cgroup"))

    def _threads(self, rank: _Rank, process: Path) -> dict[str, float]:
        """Run and wait of whichever thread did most since the last reading, added up."""
        most, known = (0.0, 0.0), False
        for name in rank.threads:
            now = _schedule(process, name)
            then = rank.last.get(name)
            rank.last[name] = now
            known = known or sum(now) > 0
            if then is not None:
                grown = difference(now[0], then[0]), difference(now[1], then[1])
                most = max(most, grown, key=sum)
        rank.run_s += most[0] / 1e9
        rank.wait_s += most[1] / 1e9
        return {"run_s": rank.run_s, "wait_s": rank.wait_s} if known else {}

    def _mhz(self, processor: str) -> float:
        """Of the CPU that its first thread was on last."""
        if not processor.isdigit():
            return math.nan
        return number(read_text(self._cpus / f"cpu{processor}/cpufreq/scaling_cur_freq")) / 1e3

    # -- the node ------------------------------------------------------------------------------------

    def _node(self) -> dict[str, float]:
        memory = table(read_text(self._proc / "vmstat"))
        wanted = {"major_faults": ("pgmajfault", 1.0), "oom_kills": ("oom_kill", 1.0)}
        figures = self._processors() | scaled(memory, wanted)
        if "pswpin" in memory:
            figures["swapped_pages"] = memory["pswpin"] + memory.get("pswpout", 0.0)
        for what in ("cpu", "io", "memory"):
            found = pressure(read_text(self._proc / "pressure" / what))
            figures[f"psi_{what}_s"] = found.get("some", math.nan)
            if what != "cpu":
                figures[f"psi_{what}_full_s"] = found.get("full", math.nan)
        figures["disk_queue_s"] = _disk_queue_s(read_text(self._proc / "diskstats"))
        return figures | _tcp(read_text(self._proc / "net/snmp"))

    def _processors(self) -> dict[str, float]:
        """Of all CPUs together: shares of one second a second."""
        lines = read_text(self._proc / "stat").splitlines()
        count = sum(line.startswith("cpu") and line[3:4].isdigit() for line in lines)
        ticks = [number(text) for text in lines[0].split()[1:]] if lines and lines[0].startswith("cpu ") else []
        if count == 0 or len(ticks) < 8:
            return {}
        user, nice, system, _, iowait, irq, softirq, steal = (value / _TICKS / count for value in ticks[:8])
        return {"busy_s": user + nice + system + irq + softirq, "iowait_s": iowait, "steal_s": steal}


def _behind_name(stat: str) -> list[str]:
    """The fields of /proc/PID/stat from the state on; the name before may hold anything."""
    return stat[stat.rfind(")") + 1 :].split() if ")" in stat else []


def _schedule(process: Path, thread: str) -> tuple[float, float]:
    """Nanoseconds on a CPU and waiting for one; 0 of a thread that ended or isn't counted."""
    numbers = read_text(process / "task" / thread / "schedstat").split()
    found = [number(text) for text in numbers[:2]]
    return (found[0], found[1]) if len(found) == 2 and not any(map(math.isnan, found)) else (0.0, 0.0)


def _with_colons(text: str) -> dict[str, float]:
    return table(text.replace(":", ""))


def _disk_queue_s(text: str) -> float:
    """Seconds that requests spent at whole disks (/proc/diskstats, field 14 of a line), all of them together."""
    total_s, last, seen = 0.0, "", False
    for line in text.splitlines():
        fields = line.split()
        if len(fields) < 14 or fields[2].startswith(("loop", "ram", "zram")):
            continue
        if last and fields[2].startswith(last):  # sda1 behind sda: counted in it
            continue
        last, seen = fields[2], True
        total_s += number(fields[13]) / 1e3
    return total_s if seen else math.nan


def _tcp(text: str) -> dict[str, float]:
    """/proc/net/snmp: a line of names, then one of figures."""
    rows = [line.split() for line in text.splitlines() if line.startswith("Tcp:")]
    if len(rows) != 2:
        return {}
    figures = dict(zip(rows[0][1:], map(number, rows[1][1:]), strict=False))
    return scaled(figures, {"tcp_retransmits": ("RetransSegs", 1.0), "tcp_segments": ("OutSegs", 1.0)})
