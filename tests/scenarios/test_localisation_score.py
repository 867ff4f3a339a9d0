"""How verdicts are scored and what the page says of them: no cluster needed."""

import pytest

from tests.scenarios import localisation_page
from tests.scenarios.localisation_cases import CASES, LAYOUTS, Case
from tests.scenarios.localisation_page import Healthy, Row, page
from tests.scenarios.localisation_score import ABSTAINED, KIND, PART, RIGHT, SILENT, WRONG, hang_outcome, outcome

BY_KEY = {case.key: case for case in CASES}


def suspect(kind, nodes, ranks):
    return {"kind": kind, "nodes": nodes, "ranks": ranks}


def score(key, *suspects):
    case = BY_KEY[key]
    return outcome(case, LAYOUTS[case.layout], {"suspects": list(suspects)})


@pytest.mark.parametrize(
    ("key", "suspects", "expected"),
    [
        ("tp2dp2pp2-gpu-67", [suspect("gpu", ["n2"], [3])], RIGHT),
        ("tp2dp2pp2-gpu-67", [suspect("gpu", ["n2"], [2])], WRONG),
        ("tp2dp2pp2-gpu-67", [suspect("cpu", ["n2"], [3])], KIND),
        ("tp2dp2pp2-gpu-67", [suspect("gpu", [], [])], WRONG),
        ("tp2dp2pp2-gpu-67", [suspect("gpu", ["n2"], [3]), suspect("gpu", ["n1"], [0])], WRONG),
        ("tp2dp2pp2-gpu-67", [], ABSTAINED),
        ("tp2dp2pp2-two-gpus", [suspect("gpu", ["n1"], [0])], PART),
        ("tp2dp2pp2-two-gpus", [suspect("gpu", ["n1"], [0]), suspect("gpu", ["n4"], [7])], RIGHT),
        ("tp2dp2pp2-dp-link", [suspect("link", ["n1", "n2"], [0, 2])], RIGHT),
        ("tp2dp2pp2-dp-link", [suspect("link", ["n1", "n3"], [0, 4])], WRONG),
        ("dp4pp2-dp-link", [suspect("link", ["n1", "n2"], [0, 1, 2, 3])], RIGHT),
        ("dp4pp2-dp-link", [suspect("gpu", ["n1"], [1])], KIND),
        ("tp2dp2pp2-cpu", [suspect("cpu", ["n2"], [2, 3])], RIGHT),
        ("tp2dp2pp2-cpu", [suspect("cpu", ["n1"], [0, 1])], WRONG),
        ("tp2dp2pp2-storage", [suspect("storage", [], [])], RIGHT),
        ("tp2dp2pp2-storage", [suspect("storage", ["n1"], [0])], WRONG),
        ("tp2dp2pp2-nothing", [], RIGHT),
        ("tp2dp2pp2-nothing", [suspect("gpu", ["n1"], [0])], WRONG),
    ],
)
def test_what_a_verdict_is_worth(key: str, suspects: list[dict[str, object]], expected: str) -> None:
    assert score(key, *suspects) == expected


def test_without_a_verdict() -> None:
    for key, expected in (("tp2dp2pp2-gpu-67", SILENT), ("tp2dp2pp2-start", SILENT), ("tp2dp2pp2-nothing", RIGHT)):
        assert outcome(BY_KEY[key], LAYOUTS["tp2dp2pp2"], None) == expected


def test_a_hung_rank() -> None:
    case, layout = BY_KEY["tp2dp2pp2-hang"], LAYOUTS["tp2dp2pp2"]
    assert hang_outcome(case, layout, None) == SILENT
    assert hang_outcome(case, layout, {"component": {"kind": "rank", "node": "n2", "rank": 3}}) == RIGHT
    assert hang_outcome(case, layout, {"component": {"kind": "rank", "node": "n2", "rank": 2}}) == WRONG
    assert hang_outcome(case, layout, {"component": None}) == ABSTAINED


def test_every_case_can_be_played() -> None:
    assert len(BY_KEY) == len(CASES)
    for case in CASES:
        layout = LAYOUTS[case.layout]
        assert all(gpu in layout.gpus for culprit in case.culprits for gpu in culprit.gpus), case
    shared = {case.job for case in CASES if not case.before and not case.options}
    assert shared == set(LAYOUTS), "the others have jobs of their own"


def test_the_page_counts_what_was_played() -> None:
    def row(outcome: str, seconds: float) -> dict[str, object]:
        return vars(Row("dp4pp2-gpu-67", outcome, "n1 GPU", 1.3, report_s=5.0, verdict_s=seconds))

    healthy = vars(Healthy("Megatron DP4 PP2", 100, 120.0, 5, 0))
    content = {"rows": [row(RIGHT, 9.0), row(WRONG, 31.0)], "healthy": [healthy], "streams": {}, "release": "1"}
    text = page(content)
    assert "2 faults played: 1 right, 1 WRONG. Right: 50%." in text
    assert "| one GPU at 0.67 | 1.30x | 1 right, 1 WRONG | 20 / 31 s | n1 GPU |" in text
    assert "| report | verdict | 20.0 s | 31.0 s | 2 |" in text
    assert "2 minutes, 100 iterations, 5 profiles taken and judged, 0 of which named anybody" in text
    assert localisation_page.page({**content, "rows": []}).count("not played yet") == len(CASES)


def test_a_removed_case_leaves_the_page() -> None:
    gone = Case("gone", "dp4pp2", "gone", ())
    content = {"rows": [vars(Row(gone.key, RIGHT, "", 1.0))], "healthy": [], "streams": {}, "release": ""}
    assert "Nothing was played yet." in page(content)
