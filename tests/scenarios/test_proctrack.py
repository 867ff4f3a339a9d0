"""Steps under proctrack/cgroup, as most sites have it: at their end nothing of ours is in the step's cgroup."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from string import Template

import pytest

from greyhound.sandbox import templates
from tests.endings.bed import Bed, open_bed, until
from tests.endings.outcome import end_once
from tests.endings.ways import NODE, WAYS, Way, plain, ready

FREEZER = Path("/sys/fs/cgroup/freezer")
pytestmark = [
    pytest.mark.scenario,
    pytest.mark.cluster,
    pytest.mark.skipif(os.getuid() != 0 or not FREEZER.is_dir(), reason="needs root and cgroup v1's freezer"),
]
QUICK = [way for way in WAYS if way.waits_s <= 60 and way.name not in ("out of memory", "kill -9 of slurmstepd")]


def slurms() -> set[Path]:
    """The cgroups of all Slurm daemons here."""
    return set(FREEZER.glob("slurm*"))


def remove(group: Path) -> None:
    """A daemon leaves its own behind."""
    for below in sorted(group.rglob("*/"), reverse=True):
        with contextlib.suppress(OSError):
            below.rmdir()
    with contextlib.suppress(OSError):
        group.rmdir()


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    before = slurms()
    text = templates.SLURM_CONF.template.replace("proctrack/linuxproc", "proctrack/cgroup")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(templates, "SLURM_CONF", Template(text))
        with open_bed(f"cgroup{os.getpid() % 10000}") as opened:
            yield opened
    for group in slurms() - before:
        remove(group)


def cgroup_of(pid: int) -> Path:
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    return FREEZER / next(line.split(":")[2] for line in lines if line.split(":")[1] == "freezer").lstrip("/")


def test_our_processes_are_in_no_task_s_way(bed: Bed) -> None:
    """Where Slurm puts ranks and ours, and that it removes all of it at the end."""
    with plain(bed, True) as step:
        ready(WAYS[0], step, followed=False)
        ranks, ours = cgroup_of(step.pids[0]), cgroup_of(step.one(NODE))
        assert f"job_{step.find_job()}" in str(ranks)
        print(f"ranks in {ranks}, ours in {ours}")
        step.enough()
        assert step.wait() == 0, step.errors
        step.assert_nothing_left()
        until(lambda: not ranks.exists() and (ours == ranks or not list(ours.glob("job_*"))), "the end of the cgroup")


@pytest.mark.parametrize("way", QUICK, ids=lambda way: way.name)
def test_nothing_is_left_in_the_cgroups(bed: Bed, way: Way) -> None:
    end_once(bed, way, True, followed=False)
    left = until(lambda: not list(FREEZER.glob("slurm*/uid_*/job_*")), "the end of all jobs' cgroups")
    assert left and bed.bad_nodes() == []
