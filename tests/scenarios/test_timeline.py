"""A recorded training as a timeline: the rank on a slow GPU comes later to what all do together (make scenarios)."""

import subprocess
from pathlib import Path
from statistics import median

import pytest

from tests.control.helpers import GREYHOUND
from tests.scenarios.launched import Launch
from tests.trace.event_rules import check, load, tracks

pytestmark = [pytest.mark.scenario, pytest.mark.training]
WORK = ("--pp", "1", "--micro-batches", "4", "--layer-ms", "10")
SLOW_RANK = 0
LEAST_BYTES = 1024  # gradients; the losses' reductions begin right after another one
LATE_MS = 3


@pytest.mark.usefixtures("native")
def test_the_straggler_is_seen_in_the_timeline(tmp_path: Path) -> None:
    training = Launch(tmp_path, *WORK, steps=140)
    training.slow_from_the_start()
    training.wait_until_tracked()
    output = tmp_path / "timeline.json.gz"
    for command in ("record", "--seconds", "15"), ("export", "-o", output):
        subprocess.run([GREYHOUND, "trace", *command, training.name, "--record-dir", tmp_path], check=True, timeout=120)
    training.said()
    found = tracks(check(load(output)))
    assert {f"rank {rank} {what}" for rank in (0, 1) for what in ("iterations", "host")} <= set(found)
    late_ms = [1e-3 * (slow["ts"] - other["ts"]) for slow, other in common(found, SLOW_RANK, 1 - SLOW_RANK)]
    assert len(late_ms) > 20
    assert median(late_ms) > LATE_MS


def common(found, one, other):
    """Pairs of slices of the same reduction of gradients between the ranks."""
    reductions = {key(event): event for event in found[f"rank {other} host"] if reduces(event)}
    return [
        (event, reductions[key(event)])
        for event in found[f"rank {one} host"]
        if reduces(event) and key(event) in reductions
    ]


def key(event):
    return event["args"].get("communicator"), event["args"]["seq"]


def reduces(event):
    return event["name"].startswith(("all_reduce", "reduce_scatter")) and event["args"]["bytes"] >= LEAST_BYTES
