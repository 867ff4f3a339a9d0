"""The kill switch and `greyhound ab` on a running training: nothing of it is seen in the job (make scenarios)."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from greyhound.cli.ask import NOT_POSSIBLE, REFUSED
from greyhound.sandbox.watched import START_TIMEOUT_S, WatchedJob
from greyhound.trace import layout
from tests.e2e.training import read_log
from tests.scenarios.launched import Launch
from tests.scenarios.long_job import tracked_job

pytestmark = [pytest.mark.scenario, pytest.mark.cluster, pytest.mark.training]
MUTED_WITHIN_S = 5.0
STEPS = 600


@pytest.fixture
def job(request: pytest.FixtureRequest) -> Iterator[WatchedJob]:
    with tracked_job(request) as job:
        yield job
        job.sandbox.layout.mute_file.unlink(missing_ok=True)


def modes(job: WatchedJob) -> set[int]:
    """The mode words of all its rings."""
    found = set()
    for path in Path("/dev/shm").glob(f"greyhound-*-{job.job}.*/ring.*"):
        with path.open("rb") as file:
            file.seek(layout.GH_OFF_MODE)
            found.add(int.from_bytes(file.read(4), "little"))
    return found


def seconds_until(job: WatchedJob, muted: bool) -> float:
    begun_s = time.monotonic()
    while (modes(job) == {layout.GH_MODE_MUTED}) is not muted:
        assert time.monotonic() < begun_s + MUTED_WITHIN_S, "the kill switch must work within 5 s"
        time.sleep(0.05)
    return time.monotonic() - begun_s


def test_kill_switch_and_comparison_on_a_training(job: WatchedJob) -> None:
    mute = job.sandbox.layout.mute_file
    mute.write_text("driver update\n")
    job.say(f"all rings muted {seconds_until(job, True):.1f} s after the file came")
    job.wait_for("the state", lambda: job.status()["state"] == "muted")
    assert job.status()["reason"] == f"muted by the site ({mute}: driver update)"
    side = ["srun", "-Q", "-n1", "--overlap", f"--jobid={job.job}", "--greyhound=on", "hostname"]
    assert job.sandbox.run(side, timeout_s=60).stderr.count("unmonitored: muted by the site") == 1
    mute.unlink()
    job.say(f"none muted {seconds_until(job, False):.1f} s after it went")
    job.wait_for("the state", lambda: job.status()["state"] == "tracking")
    before = len(job.training())
    command = [sys.executable, "-m", "greyhound", "ab", str(job.job), "--minutes", "1.9", "--json"]
    done = subprocess.run(command, env=job.sandbox.env(), capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    job.say(found["text"])
    assert abs(found["cost"]["mean"]) < 0.05
    assert len(job.training()) > before
    assert modes(job) == {layout.GH_MODE_ON}
    assert [job.events(kind) for kind in ("suspect", "regime", "unmonitored")] == [[], [], []]
    assert len(job.events("muted")) == len(job.events("unmuted")) == 1


@pytest.mark.usefixtures("native")
def test_losses_are_the_same_under_a_comparison(tmp_path: Path) -> None:
    work = ["--micro-batches", "2", "--layer-ms", "10"]
    plain = Launch(tmp_path, *work, "--json-log", str(tmp_path / "plain"), steps=STEPS, mode="off")
    plain.said()
    watched = Launch(tmp_path, *work, "--json-log", str(tmp_path / "watched"), steps=STEPS)
    command = [sys.executable, "-m", "greyhound", "ab", watched.name, "--minutes", "0.5", "--json"]
    command += ["--record-dir", str(tmp_path)]

    def comparison() -> subprocess.CompletedProcess[str] | None:
        """None as long as it is refused: the healthy time isn't known yet."""
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        return None if done.returncode in (NOT_POSSIBLE, REFUSED) else done

    until_s = time.monotonic() + START_TIMEOUT_S
    while (done := comparison()) is None:
        assert time.monotonic() < until_s, "the comparison must begin"
        time.sleep(1.0)
    watched.said()
    assert done.returncode == 0, done.stderr
    print(json.loads(done.stdout)["text"])
    assert watched.status()["episodes"] == [] and watched.status()["iteration"]
    losses = [[row.loss_hex for row in read_log(tmp_path / name)] for name in ("plain", "watched")]
    assert losses[0] == losses[1] and len(losses[0]) == STEPS
