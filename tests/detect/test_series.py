"""The tracker on iteration times of real runs, where they are at hand."""

import csv
import os
from pathlib import Path

import pytest

from greyhound.detect.tracker import Opened, Tracker

SERIES = Path(os.environ.get("GREYHOUND_SERIES", Path(__file__).resolve().parents[3] / "shared" / "data" / "series"))
pytestmark = pytest.mark.skipif(not SERIES.is_dir(), reason="the recorded series aren't here")

CLEAN = [
    "modded_soap",
    "modded_optimizers_e21a",
    "modded_2510_scaleup1b_a",
    "jonhenshaw_nanochat_speedrun",
    "deepspeed_chat_dpo_opt350m",
    "pgolf_legendre",
]
LADDERS = ["modded_2412_valueembed_a", "modded_medium_2512_bulk", "modded_short_260210_w25"]


def opened(name):
    tracker = Tracker()
    found = []
    with (SERIES / f"{name}.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            found += tracker.update(int(row["iteration"]), float(row["seconds"]))
    return [finding for finding in found if isinstance(finding, Opened)]


@pytest.mark.parametrize("name", CLEAN)
def test_no_alarm_in_clean_runs(name):
    assert opened(name) == []


@pytest.mark.parametrize("name", LADDERS)
def test_planned_changes_are_reported_at_most_once(name):
    assert len(opened(name)) <= 1


@pytest.mark.parametrize("name", ["pipemorph_128gpu_1f1b", "pipemorph_128gpu_zb"])
def test_strong_link_windows_are_found(name):
    with (SERIES / "labels_pipemorph_128gpu.csv").open(newline="") as file:
        windows = [
            (int(row["start_iteration"]), int(row["end_iteration"]))
            for row in csv.DictReader(file)
            if float(row["added_delay_s"]) > 0.02
        ]
    found = opened(name)
    for start, end in windows:
        assert [row for row in found if start <= row.reported <= start + 9 < end], f"window from {start}"
    assert len(found) <= 12
