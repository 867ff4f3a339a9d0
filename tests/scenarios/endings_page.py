"""What many endings and kills come to: kept over several runs, written as docs/endings.md."""

import json
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tests.conftest import REPOSITORY
from tests.endings.outcome import Ending
from tests.endings.ways import WAYS

KEPT, PAGE = REPOSITORY / "build" / "endings.json", REPOSITORY / "docs" / "endings.md"
NOT_MEASURED = frozenset(way.name for way in WAYS if not way.measured)


@dataclass(frozen=True)
class Row:
    """A line of the table: one way to end; `delay_ms` is the median over the pairs."""

    way: str
    steps: int
    codes: list[int]
    codes_without: list[int]
    delay_ms: float | None
    drained: int


@dataclass(frozen=True)
class Fire:
    """Some steps of one training whose monitoring was killed piece by piece; all ended well, with the same losses."""

    training: str
    steps: int
    killed: dict[str, int]


def _kept() -> dict[str, Any]:
    empty: dict[str, Any] = {"endings": {}, "kills": []}
    return json.loads(KEPT.read_text()) if KEPT.exists() else empty


def _keep(content: dict[str, Any], release: str) -> None:
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    draft = KEPT.with_suffix(".new")
    draft.write_text(json.dumps(content, indent=1) + "\n")
    draft.replace(KEPT)
    PAGE.write_text(page(content, release))


def add_pairs(way: str, pairs: Sequence[tuple[Ending, Ending]], drained: list[str], release: str) -> Row:
    """Add (watched, bare) endings to those of earlier runs; what all come to."""
    content = _kept()
    known = content["endings"].setdefault(way, {"pairs": [], "drained": []})
    known["pairs"] += [[asdict(watched), asdict(bare)] for watched, bare in pairs]
    known["drained"] += drained
    _keep(content, release)
    return _row(way, known)


def add_kills(fire: Fire, release: str) -> None:
    """Add the kills of a run to those of earlier ones."""
    content = _kept()
    content["kills"].append(asdict(fire))
    _keep(content, release)


def _row(way: str, known: dict[str, Any]) -> Row:
    pairs = known["pairs"]
    delays_s = [watched["end_s"] - bare["end_s"] for watched, bare in pairs]
    return Row(
        way=way,
        steps=len(pairs),
        codes=sorted({watched["code"] for watched, _ in pairs}),
        codes_without=sorted({bare["code"] for _, bare in pairs}),
        delay_ms=None if way in NOT_MEASURED else round(1000 * statistics.median(delays_s), 1),
        drained=len(known["drained"]),
    )


HEAD = """# How steps end under the watch

Written by `make scenarios` (tests/scenarios/test_endings.py and test_kills.py), to which further runs add; not to be
edited. Slurm {release}.

## Ended in every way

Steps of two nodes with a small training over the stand-in, each beside the same step without `--greyhound`. In all
{steps} watched steps nothing of ours was left: no process, no file or socket in /dev/shm. Delay: the time from the end
of the last task to srun's return, how much more it is with us, median over the pairs.

| ended by | steps | exit codes with us | without | drained nodes | delay, ms |
|---|---|---|---|---|---|
{rows}
"""
KILLS = """
## Killed at random moments

`kill -9` of waiters, analyzers, masters and Redis servers, drawn by chance, while the training runs. {count} kills so
far; every step ended with exit code 0, the same losses to the last bit as without us, and nothing left.

| training | steps | kills | of which |
|---|---|---|---|
{rows}
"""


def _codes(codes: list[int]) -> str:
    return ", ".join(map(str, codes))


def _line(row: Row) -> str:
    delay = "not comparable" if row.delay_ms is None else f"{row.delay_ms:+.0f}"
    cells = [row.way, str(row.steps), _codes(row.codes), _codes(row.codes_without), str(row.drained), delay]
    return f"| {' | '.join(cells)} |"


def _kill_lines(fires: Sequence[dict[str, Any]]) -> list[str]:
    lines = []
    for training in dict.fromkeys(fire["training"] for fire in fires):
        ours = [Fire(**fire) for fire in fires if fire["training"] == training]
        killed = sum((Counter(fire.killed) for fire in ours), Counter[str]())
        parts = ", ".join(f"{name} {count}" for name, count in sorted(killed.items()))
        lines.append(f"| {training} | {sum(fire.steps for fire in ours)} | {killed.total()} | {parts} |")
    return lines


def page(content: dict[str, Any], release: str) -> str:
    """The whole page; the ways in their own order."""
    names = [way.name for way in WAYS if way.name in content["endings"]]
    rows = [_row(name, content["endings"][name]) for name in names]
    text = HEAD.format(release=release, steps=sum(row.steps for row in rows), rows="\n".join(map(_line, rows)))
    if content["kills"]:
        count = sum(sum(fire["killed"].values()) for fire in content["kills"])
        text += KILLS.format(count=count, rows="\n".join(_kill_lines(content["kills"])))
    return text
