"""Published straggler analyses: the slow worker is named, and nobody where sequences are ragged."""

import os
from pathlib import Path

import pytest

from greyhound.localize.judge import judge
from tests.localize import whatif

SERIES = Path(os.environ.get("GREYHOUND_SERIES", Path(__file__).resolve().parents[3] / "shared" / "data" / "series"))
FOLDER = SERIES.parent / "whatif"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="the published tables aren't here")


@pytest.mark.parametrize("known", [True, False], ids=["loss known", "loss unknown"])
def test_the_slow_worker_is_named(known):
    profiles, lost_s = whatif.profiles(FOLDER, "AR")
    verdict = judge(profiles, None, lost_s if known else None)
    (suspect,) = verdict.suspects
    assert profiles[suspect.ranks[0]].key == "dp 0, stage 0"
    assert (suspect.kind, len(suspect.ranks)) == ("gpu", 1)
    assert 2.2 < suspect.ratio < 2.5
    assert any("waits less" in reason for reason in suspect.reasons)


@pytest.mark.parametrize("known", [True, False], ids=["loss known", "loss unknown"])
def test_nobody_is_named_for_ragged_sequences(known):
    profiles, lost_s = whatif.profiles(FOLDER, "SE")
    verdict = judge(profiles, None, lost_s if known else None)
    assert verdict.suspects == ()
    assert verdict.abstained


@pytest.mark.parametrize("first", range(0, 40, 5))
def test_a_few_steps_are_enough(first):
    from dataclasses import replace

    def few(rows):
        names = ("iteration_s", "own_s", "host_s", "boundary_s")
        return [
            replace(
                row,
                **{name: getattr(row, name)[first : first + 5] for name in names},
                calls=tuple(call for call in row.calls if first <= call.seq // 2 < first + 5),
            )
            for row in rows
        ]

    slow, lost_s = whatif.profiles(FOLDER, "AR")
    assert [suspect.ranks for suspect in judge(few(slow), None, lost_s).suspects] == [(0,)]
    ragged, lost_s = whatif.profiles(FOLDER, "SE")
    assert judge(few(ragged), None, lost_s).suspects == ()
    assert judge(few(ragged)).suspects == ()
