"""Several jobs and steps at once on one node: each with a directory, a master and a record of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from greyhound.sandbox.cluster import Sandbox
from tests.spank.cheap import build_rank, end_event, read_json
from tests.spank.rig import until

pytestmark = pytest.mark.cluster

ARRAY = """#!/bin/sh
srun -n1 --greyhound=observe,record_dir={records} {rank} {stop}
"""
SIDE_BY_SIDE = """#!/bin/sh
for i in 1 2; do srun -n1 --overlap --greyhound=observe,record_dir={records} {rank} {stop} & done
srun -n1 --overlap --greyhound=observe,record_dir={records} hostname
wait
"""


@pytest.fixture
def scripts(tmp_path: Path) -> Iterator[dict[str, Path]]:
    """Batch scripts; whatever happens, their ranks are told to end."""
    words = {"records": tmp_path / "records", "rank": build_rank(tmp_path / "native"), "stop": tmp_path / "stop"}
    paths = {}
    for name, text in (("array", ARRAY), ("side_by_side", SIDE_BY_SIDE)):
        paths[name] = tmp_path / f"{name}.sh"
        paths[name].write_text(text.format(**words))
    yield paths
    words["stop"].touch()


def test_an_array_and_steps_side_by_side(sandbox: Sandbox, scripts: dict[str, Path], tmp_path: Path):
    array = sandbox.submit("-n1", "-w", "n1", "--array=1-2", "-o", "/dev/null", str(scripts["array"]))
    beside = sandbox.submit("-n2", "-w", "n1", "-o", str(tmp_path / "out"), str(scripts["side_by_side"]))
    records = tmp_path / "records"

    def tracked() -> list[Path]:
        return [path.parent for path in records.glob("*/*/status.json") if read_json(path).get("ranks") == 1]

    until(lambda: len(tracked()) == 4, "four steps are watched", limit_s=60)
    steps = {str(path.relative_to(records)) for path in tracked()}
    (tmp_path / "stop").touch()
    for job in (array, beside):
        sandbox.wait(job)
    until(lambda: not sandbox.run(["squeue", "-h"]).stdout, "all jobs have ended")
    jobs = sorted(int(step.split("/")[0]) for step in steps)
    assert len(set(jobs)) == 3
    assert jobs.count(beside) == 2  # of three steps: one makes no communicator
    for step in steps:
        end = end_event(records / step / "events.jsonl")
        assert end["ranks"] == 1
    assert "unmonitored" not in (tmp_path / "out").read_text()
