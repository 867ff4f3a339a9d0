"""All kinds of jobs of several users, and every form of report about them (make scenarios)."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from greyhound.sandbox.cluster import Sandbox
from tests.endings.bed import until
from tests.report.cluster import (
    FROM,
    HOSTILE,
    LONG,
    Cluster,
    check_complete,
    check_forms,
    check_truth,
    check_views,
    opened,
    read_report,
    slow_job,
)

pytestmark = [pytest.mark.scenario, pytest.mark.cluster, pytest.mark.training]
TRAIN = "srun --kill-on-bad-exit --greyhound=observe"  # else a rank that failed leaves the others waiting
KINDS = 14


def play_alone(cluster: Cluster) -> None:
    """Whatever needs a quiet machine: what else were slow would be true, too."""
    slow_job(cluster, "slow", "games")
    script = f"{TRAIN} @ 400 100 {FROM} 100000 150"
    killed = cluster.submit("killed", "games", script, "-n2", state="CANCELLED", slow=True)
    until(lambda: cluster.events(killed, "suspect"), lambda: f"its report: {cluster.told(killed)}", 90, 0.3)
    seen = killed.iterations()
    until(lambda: killed.iterations() >= seen + 60, "60 more iterations", 60, 0.3)
    cluster.kill_watch(killed)
    cluster.sandbox.run(["scancel", str(killed.job)])


def submit_others(cluster: Cluster) -> None:
    """Those that may disturb each other; trainings are told to Slurm as two tasks of one node."""
    cluster.submit("never started", "nobody", "true", "--begin=now+1hour", state="CANCELLED", watched=False)
    cluster.submit("failed", "mail", "exit 3", state="FAILED", watched=False)
    cluster.submit("failed step", "list", f"{TRAIN} @ 300 100; exit 5", "-n2", state="FAILED")
    cluster.submit("unwatched", "nobody", "sleep 5", watched=False)
    cluster.submit("long name", "backup", "srun true", watched=False, name=LONG)
    cluster.submit("hostile name", "games", f"{TRAIN} @ 300 100", "-n2", name=HOSTILE)
    cluster.submit("root", "root", f"{TRAIN} @ 300 100", "-n2")
    cluster.submit("array", "list", f"{TRAIN} @ 300 100", "-n2", "--array=0-2", rows=3)
    cluster.submit("het", "mail", f"{TRAIN} @ 300 100", "-N1", "-n2", ":", "-N1", "-n1", rows=2)


def play(cluster: Cluster) -> None:
    """All of them, to their ends; what takes longest first."""
    cluster.submit("timeout", "mail", f"{TRAIN} @ 100000 500", "-n2", "--time=1", state="TIMEOUT")
    play_alone(cluster)
    twice = cluster.submit("requeued", "backup", f"{TRAIN} @ 500 100", "-n2", "--requeue")
    cancelled = cluster.submit("cancelled", "list", f"{TRAIN} @ 100000 100", "-n2", state="CANCELLED")
    submit_others(cluster)
    cluster.requeue(twice, tracked=True)
    until(lambda: cluster.events(cancelled, "tracking"), lambda: f"its tracking: {cluster.told(cancelled)}", 60, 0.2)
    cluster.sandbox.run(["scancel", str(cancelled.job), str(cluster.jobs["never started"].job)])
    cluster.requeue(twice, tracked=True)
    cluster.wait(limit_s=120)


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    if os.getuid() != 0:
        pytest.skip("jobs of several users need root")
    sandbox: Sandbox = request.getfixturevalue("sandbox")
    with tempfile.TemporaryDirectory(prefix="greyhound-report-") as work, opened(sandbox, Path(work)) as cluster:
        play(cluster)
        yield cluster


def test_every_job_and_run_is_there(cluster: Cluster) -> None:
    assert len(cluster.jobs) == KINDS
    report = read_report(cluster)
    check_complete(cluster, report)
    check_truth(cluster.jobs["slow"], cluster.rows(cluster.jobs["slow"], report)[0])


def test_all_forms_hold_the_same_runs(cluster: Cluster) -> None:
    check_forms(cluster, read_report(cluster))


def test_everybody_sees_what_they_may(cluster: Cluster) -> None:
    check_views(cluster)


def test_each_run_of_a_requeued_job_has_its_own_record(cluster: Cluster) -> None:
    rows = cluster.rows(cluster.jobs["requeued"], read_report(cluster))
    assert [(row["restart"], row["state"], row["monitored"]) for row in rows] == [
        (0, "REQUEUED", True),
        (1, "REQUEUED", True),
        (2, "COMPLETED", True),
    ]


def test_a_watch_that_was_killed_counts_until_its_last_sign_of_life(cluster: Cluster) -> None:
    (row,) = cluster.rows(cluster.jobs["killed"], read_report(cluster))
    (episode,) = row["episodes"]
    assert (row["record"], episode["end"], episode["ended_by"]) == ("killed", None, "open at the record's last word")
    assert abs(episode["slowdown"] / 1.5 - 1) <= 0.1
    assert row["lost_s"] == pytest.approx(episode["duration_s"] / 3, rel=0.15)
