"""The compatibility table's arithmetic: when a period is exact, how far an iteration time is off, what is a problem."""

from dataclasses import replace

import pytest

from greyhound.sandbox import compatibility, truth
from greyhound.sandbox.compatibility import Row
from greyhound.sandbox.truth import FoundIteration, TrainedIteration

ROW = Row("ddp", "framework", "DDP", 2, 4, True, 0.001, 4, 6, 1.9, 1.88, 0, "this and that")


def trained(times_s):
    rows, end_s = [], 1000.0
    for number, time_s in enumerate(times_s, start=1):
        end_s += time_s
        rows.append(TrainedIteration(number, "", time_s, end_s))
    return rows


def found(log, *, phase=0.0, every=1, start=0):
    """What an exact period gives: iterations that end a share `phase` of one before the training's."""
    ends = [row.end_unix_s - phase * row.time_s for row in log][::every]
    return [FoundIteration(start + i, ends[i], ends[i] - ends[i - 1]) for i in range(1, len(ends))]


@pytest.mark.parametrize("phase", [0.0, 0.1, 0.6])
def test_an_exact_period_is_exact_at_any_phase_and_with_pauses(phase):
    log = trained([0.3, 0.31, 0.29, 0.3] * 10)
    log[20] = replace(log[20], time_s=1.3)
    log = trained([row.time_s for row in log])
    assert truth.counted_alike(found(log, phase=phase), log)
    assert truth.iteration_time_error(found(log, phase=phase), log, 35) < 0.01


def test_only_the_last_count_is_looked_at():
    log = trained([0.3] * 40)
    rows = found(log)
    assert truth.counted_alike([*found(log[:9], every=2), *rows], log)


def test_a_period_of_two_iterations_is_wrong():
    log = trained([0.3] * 40)
    assert not truth.counted_alike(found(log, every=2), log)
    assert truth.iteration_time_error(found(log, every=2), log, 35) > 0.01


def test_a_missed_iteration_is_wrong():
    log = trained([0.3] * 40)
    rows = found(log)
    renumbered = [*rows[:20], *(replace(row, index=row.index - 1) for row in rows[21:])]
    assert not truth.counted_alike(renumbered, log)


def test_each_fault_of_a_row_is_said():
    assert ROW.problems() == []
    wrong = replace(
        ROW, period_exact=False, iteration_time_error=0.02, delay=7, slowdown_reported=1.2, others=1, notes=["late"]
    )
    assert len(wrong.problems()) == 6


def test_the_page_has_results_and_what_is_unverified(tmp_path):
    bad = replace(ROW, key="bash", group="start", title="`bash`", others=2)
    compatibility.save(tmp_path / "page.json", {"bash": bad, "ddp": ROW}, ["ddp", "fsdp2", "bash"])
    text = (tmp_path / "page.md").read_text()
    assert "| DDP | 2 x 2 | exact | 0.10% | 4 | 1.90 / 1.88 | 6 later | 0 | right |" in text
    assert "WRONG: 2 other episodes or alarms" in text
    assert "Not run yet: `fsdp2`." in text
    assert text.count("unverified: ") == len(compatibility.UNVERIFIED)
    assert compatibility.load(tmp_path / "page.json") == {"ddp": ROW, "bash": bad}
