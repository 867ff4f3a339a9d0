"""The compatibility table: what was tried, what came of it, and what could not be tried. Pure but for two files."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

MAX_DELAY = 6
MAX_SLOWDOWN_ERROR = 0.15
MAX_ITERATION_TIME_ERROR = 0.01

UNVERIFIED = {
    "cgroup v2": "the sandbox's Slurm runs without cgroups",
    "configless Slurm": "the sandbox's daemons read a slurm.conf",
    "arm64": "everything here is x86-64",
    "Rocky, RHEL and others": "the sandbox needs Debian's packages of Slurm",
    "real GPUs and NCCL": "a stand-in here, through the same hook; `tests/gpu/check.sh` is for machines with GPUs",
    "pyxis, enroot, apptainer": "roots and /dev/shm of a task's own are tested with unshare and a test plugin",
    "MPI launchers (mpirun)": "no MPI in the sandbox",
}
"""What nobody could try here, and why."""

_HEADER = """\
# What works with what

Made by `make scenarios` from the results in [compatibility.json](compatibility.json); don't edit it by hand.

Each row is one training with real Slurm daemons and Redis, on the stand-in for GPUs and NCCL. One GPU was made slow
while it ran (`greyhound inject`) and healed again. *Period*: whether each iteration that Greyhound finds in each rank's
calls is the training's next one. *Iteration time*: how far the healthy iterations found are off the training's own in
sum, on the worst rank (limit 1%). *Delay*: iterations from the injection to the report (limit 6). *Slowdown*: reported
/ measured by the training itself (limit 15% apart). *Recovery*: iterations from the healing to the report. *Others*:
further episodes or alarms, the neighbour's included (none).
"""
_COLUMNS = "| {} | nodes x ranks | period | iteration time | delay | slowdown | recovery | others | result |"
_TITLES = {"framework": "Frameworks", "start": "Ways to start"}


@dataclass(frozen=True)
class Row:
    """What came of one case; iterations are the training's own, slowdowns slow over healthy time."""

    key: str
    group: str
    title: str
    nodes: int
    ranks: int
    period_exact: bool
    iteration_time_error: float
    delay: int
    recovery_delay: int
    slowdown_reported: float
    slowdown_true: float
    others: int
    tried_with: str
    notes: list[str] = field(default_factory=list)

    def problems(self) -> list[str]:
        """What isn't as it must be; empty if all is right."""
        slowdown_error = abs(self.slowdown_reported / self.slowdown_true - 1.0)
        tests = {
            "the period isn't the training's": not self.period_exact,
            f"iteration time off by {self.iteration_time_error:.1%}": (
                self.iteration_time_error > MAX_ITERATION_TIME_ERROR
            ),
            f"reported after {self.delay} iterations": not 0 <= self.delay <= MAX_DELAY,
            f"slowdown off by {slowdown_error:.0%}": slowdown_error > MAX_SLOWDOWN_ERROR,
            f"{self.others} other episodes or alarms": self.others > 0,
        }
        return [text for text, wrong in tests.items() if wrong] + self.notes


def load(path: Path) -> dict[str, Row]:
    """The results so far by their keys; none where there is no file yet."""
    if not path.exists():
        return {}
    return {row["key"]: Row(**row) for row in json.loads(path.read_text())}


def _cells(row: Row) -> str:
    problems = row.problems()
    cells = [
        row.title,
        f"{row.nodes} x {row.ranks // row.nodes}",
        "exact" if row.period_exact else "wrong",
        f"{row.iteration_time_error:.2%}",
        str(row.delay),
        f"{row.slowdown_reported:.2f} / {row.slowdown_true:.2f}",
        f"{row.recovery_delay} later",
        str(row.others),
        "WRONG: " + "; ".join(problems) if problems else "right",
    ]
    return f"| {' | '.join(cells)} |"


def _section(group: str, rows: Iterable[Row]) -> list[str]:
    head = _COLUMNS.format(_TITLES[group].lower())
    return [f"## {_TITLES[group]}", "", head, "|" + "---|" * (head.count("|") - 1), *map(_cells, rows), ""]


def render(rows: dict[str, Row], keys: Sequence[str]) -> str:
    """The page; rows in the order of `keys`, those that weren't run yet named below."""
    known = [rows[key] for key in keys if key in rows]
    lines = [_HEADER]
    for group in _TITLES:
        lines += _section(group, [row for row in known if row.group == group])
    lines += ["Tried with " + "; ".join(sorted({row.tried_with for row in known})) + ".", ""]
    missing = [f"`{key}`" for key in keys if key not in rows]
    lines += [f"Not run yet: {', '.join(missing)}.", ""] if missing else []
    lines += ["## Unverified", "", "| what | why |", "|---|---|"]
    lines += [f"| {what} | unverified: {why} |" for what, why in UNVERIFIED.items()]
    return "\n".join(lines) + "\n"


def save(path: Path, rows: dict[str, Row], keys: list[str]) -> None:
    """Write the results of `keys` to `path` (JSON) and the page beside it (.md)."""
    kept = {key: rows[key] for key in keys if key in rows}
    path.write_text(json.dumps([asdict(row) for row in kept.values()], indent=1) + "\n")
    path.with_suffix(".md").write_text(render(kept, keys))
