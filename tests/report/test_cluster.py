"""From watched jobs to their lines in the report, over slurmctld, slurmdbd and MariaDB (all kinds: make scenarios)."""

import json
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from greyhound.sandbox.cluster import Sandbox
from tests.report.cluster import (
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

pytestmark = [pytest.mark.cluster, pytest.mark.training]


@pytest.fixture(scope="module")
def cluster(sandbox: Sandbox) -> Iterator[Cluster]:
    if os.getuid() != 0:
        pytest.skip("jobs of several users need root")
    with tempfile.TemporaryDirectory(prefix="greyhound-report-") as work, opened(sandbox, Path(work)) as cluster:
        slow_job(cluster, "slow", "games")
        cluster.submit("failed", "mail", "exit 3", state="FAILED", watched=False, name=HOSTILE)
        cluster.submit("long", "nobody", "srun true", watched=False, name=LONG)
        twice = cluster.submit("requeued", "backup", "srun --greyhound=observe @ 120 100", "-n2", "--requeue")
        cluster.requeue(twice)
        cluster.wait()
        yield cluster


def test_every_run_is_there_and_the_figures_are_the_training_s_own(cluster: Cluster) -> None:
    report = read_report(cluster)
    check_complete(cluster, report)
    (row,) = cluster.rows(cluster.jobs["slow"], report)
    check_truth(cluster.jobs["slow"], row)


def test_all_forms_hold_the_same_runs(cluster: Cluster) -> None:
    check_forms(cluster, read_report(cluster))


def test_everybody_sees_what_they_may(cluster: Cluster) -> None:
    check_views(cluster)


def test_the_job_s_comment_tells_in_a_line_and_keeps_the_user_s_own(cluster: Cluster) -> None:
    report = read_report(cluster)
    (row,) = cluster.rows(cluster.jobs["slow"], report)
    assert re.fullmatch(r"mine; my own; greyhound: 1 fail-slow, \d+ s, 1\.\d\dx", str(row["comment"])), row["comment"]
    last = cluster.rows(cluster.jobs["requeued"], report)[-1]
    assert last["comment"] == "greyhound: no fail-slow"


def test_collect_writes_where_nobody_else_wrote_and_once(cluster: Cluster) -> None:
    def admin_comment(key: str) -> str:
        job = str(cluster.jobs[key].job)
        return cluster.sandbox.run(["sacct", "-XnP", "-o", "AdminComment", "-j", job]).stdout.strip()

    job = str(cluster.jobs["requeued"].job)
    taken = ["sacctmgr", "-i", "modify", "job", "where", f"jobid={job}", "set", "AdminComment={jobmon: 1}"]
    assert cluster.sandbox.run(taken).returncode == 0
    planned = cluster.greyhound("collect", "--since=now-1hours", "--dry-run")
    assert planned.returncode == 0 and str(cluster.jobs["slow"].job) in planned.stdout, planned
    assert admin_comment("slow") == ""
    first = cluster.greyhound("collect", "--since=now-1hours")
    assert first.returncode == 0, first.stderr
    assert re.fullmatch(r"greyhound: 1 fail-slow, \d+ s, 1\.\d\dx", admin_comment("slow"))
    assert admin_comment("requeued") == "{jobmon: 1}"
    assert admin_comment("failed") == ""
    again = cluster.greyhound("collect", "--since=now-1hours", "--json")
    assert json.loads(again.stdout)["written"] == 0, again
    refused = cluster.greyhound("collect", "--since=now-1hours", user="games")
    assert refused.returncode in (0, 1) and admin_comment("requeued") == "{jobmon: 1}"
