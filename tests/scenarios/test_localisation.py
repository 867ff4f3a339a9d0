"""Who is named for which fault: one cluster, a few jobs, many faults one after the other (make scenarios)."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from greyhound.control.verdict_data import suspect_text
from greyhound.sandbox import truth
from greyhound.sandbox.cluster import Sandbox
from tests.scenarios import localisation_page
from tests.scenarios.kept_profiles import keep_profiles
from tests.scenarios.localisation_bed import Bed, Told
from tests.scenarios.localisation_cases import CASES, LAYOUTS, Case
from tests.scenarios.localisation_page import Healthy, Row
from tests.scenarios.localisation_score import RIGHT, WRONG, hang_outcome, outcome

pytestmark = [pytest.mark.scenario, pytest.mark.cluster, pytest.mark.training]
PROFILES = localisation_page.KEPT.with_name("profiles")
BY_JOB = sorted(CASES, key=lambda case: (list(LAYOUTS).index(case.layout), case.before, bool(case.options)))


@dataclass
class Jobs:
    """The cluster, and the job that runs in it now."""

    sandbox: Sandbox
    stack: ExitStack
    key: str = ""
    bed: Bed | None = None

    def bed_of(self, case: Case) -> Bed:
        """The case's job; the one before ends first."""
        if self.key != case.job or self.bed is None:
            self.stack.close()
            self.key, self.bed = case.job, None
            work = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
            bed = Bed(self.sandbox, LAYOUTS[case.layout], case.options, work)
            for fault in case.faults if case.before else ():
                bed.job.greyhound("inject", *fault)
            bed.start()
            self.stack.enter_context(bed.followed())
            self.bed = bed
            if not case.before:
                bed.settle()
        return self.bed


@pytest.fixture(scope="module")
def jobs(request: pytest.FixtureRequest) -> Iterator[Jobs]:
    with ExitStack() as stack:
        yield Jobs(request.getfixturevalue("sandbox"), stack)


def row_of(case: Case, told: Told) -> Row:
    """The case's line."""
    event = told.fail_stop if case.hangs else told.verdict
    since = told.report if case.reported else None
    seconds = None
    if event is not None and (since is not None or not case.reported):
        seconds = truth.event_unix_s(event) - (truth.event_unix_s(since) if since else told.injected_s)
    return Row(
        key=case.key,
        outcome=outcome_of(case, told),
        named=named_by(case, told),
        slowdown=round(told.slowdown, 3),
        report_s=truth.event_unix_s(since) - told.injected_s if since else None,
        verdict_s=seconds if case.hangs or case.reported else None,
        start_s=seconds if case.before else None,
    )


def outcome_of(case: Case, told: Told) -> str:
    """A fail-stop where nobody hangs is wrong, too."""
    layout = LAYOUTS[case.layout]
    if case.hangs:
        return hang_outcome(case, layout, told.fail_stop)
    return WRONG if told.fail_stop else outcome(case, layout, told.verdict["data"] if told.verdict else None)


def named_by(case: Case, told: Told) -> str:
    """Who was named, or why nobody."""
    if case.hangs:
        component = (told.fail_stop or {}).get("component") or {}
        return ", ".join(f"{name} {value}" for name, value in component.items() if value is not None)
    if told.verdict is None:
        return ""
    data = told.verdict["data"]
    return "; ".join(map(suspect_text, data["suspects"])) or f"nobody: {data['abstained']}"


def earlier_run(jobs: Jobs, case: Case) -> None:
    """A healthy run of the same work that was long enough to be remembered, where there is none yet."""
    if "earlier" not in case.title or list(jobs.sandbox.layout.records.glob("runs-*/runs.jsonl")):
        return
    bed = jobs.bed_of(Case("earlier", case.layout, "", ()))
    bed.wait("it to be remembered", lambda: bool(list(jobs.sandbox.layout.records.glob("runs-*/runs.jsonl"))), 120.0)


@pytest.mark.parametrize("case", BY_JOB, ids=[case.key for case in BY_JOB])
def test_the_injected_component_is_named_and_nobody_else(case: Case, jobs: Jobs) -> None:
    earlier_run(jobs, case)
    bed = jobs.bed_of(case)
    begun_s, begun, profiled = time.monotonic(), len(bed.job.training()), len(bed.events("profile"))
    try:
        told = bed.from_the_start(case) if case.before or case.options else bed.play(case)
    finally:
        keep_profiles(bed.job, PROFILES / case.key)
    row = row_of(case, told)
    print(row)
    localisation_page.add(row, jobs.sandbox.state.release)
    if not case.faults:
        localisation_page.add_healthy(
            Healthy(
                layout=f"{LAYOUTS[case.layout].title}{', ragged' if case.options else ''}",
                iterations=len(bed.job.training()) - begun,
                seconds=time.monotonic() - begun_s,
                profiles=len(bed.events("profile")) - (0 if case.options else profiled),
                verdicts=int(row.outcome != RIGHT),
            )
        )
    assert row.outcome != WRONG


def test_the_page_is_made_of_the_results() -> None:
    if localisation_page.KEPT.exists():
        assert localisation_page.PAGE.read_text() == localisation_page.page(localisation_page.load())
