"""Every framework and every way to start, with one slow GPU each; `make scenarios` writes docs/compatibility.md."""

import tempfile
from pathlib import Path

import pytest

from greyhound.sandbox import compatibility
from greyhound.sandbox.cluster import Sandbox
from tests.scenarios import driver
from tests.scenarios.cases import CASES, KEYS, TEMPLATES, Case, shortened

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "compatibility.json"
QUICK = ("launch-torchrun",)  # runs in `make test`, too


@pytest.mark.cluster
@pytest.mark.training
@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[] if case.key in QUICK else [pytest.mark.scenario]) for case in CASES],
    ids=KEYS,
)
def test_the_slow_gpu_is_found_and_nothing_else(case: Case, request: pytest.FixtureRequest) -> None:
    everything = request.config.getoption("--scenarios")
    sandbox: Sandbox = request.getfixturevalue("sandbox")
    with tempfile.TemporaryDirectory() as work:
        row = driver.play(case if everything else shortened(case), sandbox, Path(work))
    print(row)
    if everything:
        compatibility.save(RESULTS, {**compatibility.load(RESULTS), case.key: row}, KEYS)
    assert row.problems() == []


def test_the_page_is_made_of_the_results() -> None:
    rows = compatibility.load(RESULTS)
    assert RESULTS.with_suffix(".md").read_text() == compatibility.render(rows, KEYS)


def test_every_template_is_handed_in() -> None:
    handed_in = {case.template.name for case in CASES if case.template}
    assert handed_in == {path.name for path in TEMPLATES.glob("*.sbatch")}
