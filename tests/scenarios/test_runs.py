"""Earlier runs of the same training tell of a GPU that is slow from the start; its calls in files (make scenarios)."""

from pathlib import Path

import pytest

from tests.scenarios.launched import Launch

pytestmark = [pytest.mark.scenario, pytest.mark.training]
WORK = ("--micro-batches", "4", "--layer-ms", "20")


@pytest.mark.usefixtures("native")
def test_a_run_that_is_slow_from_its_start_says_so(tmp_path: Path) -> None:
    first = Launch(tmp_path, *WORK)
    recorded = first.record_calls(tmp_path / "calls")
    assert first.said() == []
    healthy_s = float(str(first.status()["healthy_s"]))
    assert [row["episodes"] for row in recorded] == [[], []]
    assert [row["healthy_s"] for row in recorded] == [pytest.approx(healthy_s, rel=0.03)] * 2
    slow = Launch(tmp_path, *WORK)
    slow.slow_from_the_start()
    (line,) = slow.said()
    assert "x slower than 1 earlier run with the same calls" in line
    status = slow.status()
    assert status["fingerprint"] and status["fingerprint"] == first.status()["fingerprint"]
    assert 1.1 < status["runs"]["slowdown"] < 1.3
    assert status["episodes"] == []
    third = Launch(tmp_path, *WORK)
    assert third.said() == []
    assert third.status()["runs"]["runs"] == 2
    other = Launch(tmp_path, *WORK, "--micro-batches", "6")
    assert other.said() == []
    assert other.status()["runs"] is None
    assert other.status()["fingerprint"] not in (None, status["fingerprint"])
