"""What the faults came to: kept over several runs, written as docs/localisation.md."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from tests.conftest import REPOSITORY
from tests.scenarios.localisation_cases import CASES, LAYOUTS, Case
from tests.scenarios.localisation_score import ABSTAINED, KIND, PART, RIGHT, SILENT, WRONG

KEPT, PAGE = REPOSITORY / "build" / "localisation.json", REPOSITORY / "docs" / "localisation.md"
OUTCOMES = (RIGHT, PART, KIND, ABSTAINED, SILENT, WRONG)


@dataclass(frozen=True)
class Row:
    """One fault played once. `slowdown` is the training's own; seconds are None where they don't apply.

    `report_s`: injection to report; `verdict_s`: report (a hung rank: injection) to verdict; `start_s`: submission of
    the job to verdict.
    """

    key: str
    outcome: str
    named: str
    slowdown: float
    report_s: float | None = None
    verdict_s: float | None = None
    start_s: float | None = None


@dataclass(frozen=True)
class Healthy:
    """A stretch of a real healthy training: iterations, seconds, profiles that were taken and judged, verdicts."""

    layout: str
    iterations: int
    seconds: float
    profiles: int
    verdicts: int


def load() -> dict[str, Any]:
    """The results so far."""
    empty: dict[str, Any] = {"rows": [], "healthy": [], "streams": {}, "release": ""}
    return {**empty, **json.loads(KEPT.read_text())} if KEPT.exists() else empty


def _keep(content: dict[str, Any]) -> None:
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    draft = KEPT.with_suffix(".new")
    draft.write_text(json.dumps(content, indent=1) + "\n")
    draft.replace(KEPT)
    PAGE.write_text(page(content))


def add(row: Row, release: str) -> None:
    """Add what a fault came to."""
    content = load()
    content["rows"].append(asdict(row))
    content["release"] = release
    _keep(content)


def add_healthy(stretch: Healthy) -> None:
    """Add a healthy stretch."""
    content = load()
    content["healthy"].append(asdict(stretch))
    _keep(content)


def add_streams(streams: dict[str, Any]) -> None:
    """Replace what the drawn streams came to."""
    _keep({**load(), "streams": streams})


HEAD = """\
# Who is named for a fail-slow

Written by `make scenarios` (tests/scenarios/test_localisation.py), to which further runs add; not to be edited.
Slurm {release}.

Each fault is injected into a running training (`greyhound inject`) on real Slurm daemons and Redis, over the stand-in
for GPUs and NCCL, and healed once the user was told. A verdict is *right* if it names every injected component by its
right kind and nobody else; *in part* if it names only some of them; *WRONG* if it names anybody innocent. Where nobody
is to blame, right means that nobody was named.

{summary}
"""
TIMES = """
## How soon

| from | to | median | worst | verdicts |
|---|---|---|---|---|
"""


def _counted(rows: Sequence[Row]) -> str:
    counts = Counter(row.outcome for row in rows)
    return ", ".join(f"{counts[word]} {word}" for word in OUTCOMES if counts[word])


def _summary(rows: Sequence[Row]) -> str:
    if not rows:
        return "Nothing was played yet."
    right = sum(row.outcome == RIGHT for row in rows)
    return f"{len(rows)} faults played: {_counted(rows)}. Right: {right / len(rows):.0%}."


def _seconds(values: Sequence[float]) -> str:
    return f"{median(values):.0f} / {max(values):.0f} s" if values else ""


def _line(case: Case, rows: Sequence[Row]) -> str:
    slow = [row.slowdown for row in rows if case.faults and not case.before and not case.hangs]
    times = [row.verdict_s if row.start_s is None else row.start_s for row in rows]
    named = "; ".join(dict.fromkeys(row.named for row in rows))
    cells = [
        case.title,
        f"{median(slow):.2f}x" if slow else "",
        _counted(rows),
        _seconds([seconds for seconds in times if seconds is not None]),
        named or "nobody",
    ]
    return f"| {' | '.join(cells)} |"


def _tables(rows: Sequence[Row]) -> list[str]:
    lines = []
    for layout in LAYOUTS.values():
        lines += ["", f"## {layout.title}", "", "| fault | slow-down | verdicts | after, median / worst | named |"]
        lines += ["|---|---|---|---|---|"]
        for case in (case for case in CASES if case.layout == layout.key):
            played = [row for row in rows if row.key == case.key]
            lines.append(_line(case, played) if played else f"| {case.title} | | not played yet | | |")
    return lines


def _times(rows: Sequence[Row]) -> str:
    kinds = {
        ("report", "verdict"): [row.verdict_s for row in rows if row.report_s is not None],
        ("injection of a hang", "fail-stop"): [row.verdict_s for row in rows if row.report_s is None],
        ("submission of the job", "verdict, slow from the start"): [row.start_s for row in rows],
    }
    text = TIMES
    for (begin, end), values in kinds.items():
        known = [seconds for seconds in values if seconds is not None]
        if known:
            text += f"| {begin} | {end} | {median(known):.1f} s | {max(known):.1f} s | {len(known)} |\n"
    return text


def _healthy(content: dict[str, Any]) -> str:
    found = [Healthy(**row) for row in content["healthy"]]
    lines = ["", "## Healthy trainings", ""]
    if found:
        minutes = sum(one.seconds for one in found) / 60
        lines.append(
            f"Real ones in the sandbox: {len(found)} runs of {', '.join(sorted({one.layout for one in found}))}, "
            f"{minutes:.0f} minutes, {sum(one.iterations for one in found):,} iterations, "
            f"{sum(one.profiles for one in found)} profiles taken and judged, "
            f"{sum(one.verdicts for one in found)} of which named anybody."
        )
    streams = content["streams"]
    if streams:
        lines += [
            "",
            f"Drawn ones (not real trainings; {streams['what']}): {streams['runs']} runs, of which "
            f"{streams['verdicts']} named anybody.",
        ]
    return "\n".join(lines) + "\n"


def page(content: dict[str, Any]) -> str:
    """The whole page; the cases in their own order."""
    known = {case.key for case in CASES}
    rows = [row for row in (Row(**row) for row in content["rows"]) if row.key in known]
    head = HEAD.format(release=content["release"], summary=_summary(rows))
    return head + _times(rows) + "\n".join(_tables(rows)) + "\n" + _healthy(content)


if __name__ == "__main__":
    PAGE.write_text(page(load()))
