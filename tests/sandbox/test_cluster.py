"""The private cluster with real daemons."""

import json
import os
import subprocess
import time

import pytest

from greyhound.sandbox import cluster, listeners
from greyhound.sandbox.cluster import Sandbox
from greyhound.sandbox.page import StandinPage
from greyhound.slurm.client import CommandClient

pytestmark = pytest.mark.cluster


def until(probe, timeout_s=30):
    deadline = time.monotonic() + timeout_s
    while not (value := probe()):
        assert time.monotonic() < deadline, f"{probe} stayed {value!r}"
        time.sleep(0.1)
    return value


def test_nodes_have_gpus_and_room_for_eight_ranks(sandbox):
    answer = sandbox.srun(
        "-N2", "--gpus-per-node=2", "--ntasks-per-node=8", "sh", "-c", "echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES"
    )
    assert sorted(answer.stdout.splitlines()) == ["n1 0,1"] * 8 + ["n2 0,1"] * 8, answer.stderr


def test_every_listener_is_on_loopback(sandbox):
    pids = [one.pid for one in sandbox.state.processes]
    assert listeners.foreign(pids) == []
    assert len(sandbox.state.processes) == 4 + 2


def test_a_job_is_submitted_watched_and_accounted_for(sandbox):
    job = sandbox.submit("--job-name=probe", "--output=/dev/null", "--wrap", "srun true")
    assert job - sandbox.state.first_job_id in range(10_000)
    assert sandbox.wait(job) == "COMPLETED"
    client = CommandClient(environment=sandbox.env())
    assert client.job_state(str(job)) == "COMPLETED"
    assert client.node_address("n2") == "127.0.0.1"
    # slurmctld hands jobs to slurmdbd every few seconds; until then sacct shows a stub.
    sacct = ["sacct", "-n", "-P", "-X", "-j", str(job), "-o", "JobName,State"]
    until(lambda: sandbox.run(sacct).stdout == "probe|COMPLETED\n")


def test_an_unknown_job(sandbox):
    assert CommandClient(environment=sandbox.env()).job_state("66000000") == "UNKNOWN"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_second_user_runs_jobs_but_reads_no_secrets(sandbox):
    assert sandbox.run(["srun", "id", "-un"], user="nobody").stdout == "nobody\n"
    for secret in (
        sandbox.layout.munge_key,
        sandbox.layout.database_socket,
        sandbox.layout.directory / "etc/slurmdbd.conf",
    ):
        assert secret.exists()
        assert sandbox.run(["test", "-r", str(secret)], user="nobody").returncode == 1


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_an_ordinary_user_has_a_sandbox_too(name, cli):
    def as_nobody(*arguments):
        environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1"}
        command = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", *cli, "sandbox", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=90, env=environment, cwd="/")

    if as_nobody("status").returncode != 0:
        pytest.skip("this installation cannot be read by nobody")
    try:
        up = as_nobody("up", "--name", name, "--nodes", "1")
        assert up.returncode == 0, up.stderr
        probe = ["srun", "--gpus-per-node=2", "sh", "-c", "echo $(id -un) $CUDA_VISIBLE_DEVICES"]
        assert as_nobody("run", "--name", name, "--", *probe).stdout == "nobody 0,1\n"
    finally:
        assert as_nobody("down", "--name", name).returncode == 0


def test_the_page_names_every_gpu(sandbox):
    with StandinPage.open(sandbox.layout.page) as page:
        assert page.gpus() == {"n1:0": 1.0, "n1:1": 1.0, "n2:0": 1.0, "n2:1": 1.0}
    answer = sandbox.srun("-N1", "sh", "-c", "echo $GREYHOUND_STANDIN_PAGE $GREYHOUND_RECORD_DIR")
    assert answer.stdout.split() == [str(sandbox.layout.page), str(sandbox.layout.records)]


def test_up_once_more_changes_nothing(sandbox):
    said = []
    again = Sandbox.up(sandbox.layout.name, nodes=2, say=said.append)
    assert again.state.processes == sandbox.state.processes
    assert "already up" in said[0]


def test_the_command_line(sandbox, cli):
    name = sandbox.layout.name
    listed = json.loads(subprocess.run([*cli, "sandbox", "status", "--json"], capture_output=True, timeout=60).stdout)
    assert [one["state"] for one in listed if one["name"] == name] == ["up"]
    inside = [*cli, "sandbox", "run", "--name", name, "--"]
    assert subprocess.run([*inside, "sh", "-c", "exit 7"], timeout=60).returncode == 7
    missing = subprocess.run([*inside, "no-such-program"], capture_output=True, text=True, timeout=60)
    assert (missing.returncode, "'no-such-program'" in missing.stderr) == (1, True)


def test_down_ends_jobs_and_leaves_nothing_but_the_users_own_processes(sandbox, name, remains):
    """Two side by side; the second goes down with a job running and a foreign directory in /dev/shm."""
    second = Sandbox.up(name, nodes=1)
    first_jobs, second_jobs = sandbox.state.first_job_id, second.state.first_job_id
    assert abs(first_jobs - second_jobs) >= 10_000
    assert not set(sandbox.state.ports.values()) & set(second.state.ports.values())
    job = second.submit("--output=/dev/null", "--wrap", "srun sleep 600")
    until(lambda: second.job_state(job) == "RUNNING")
    left = second.layout.page.parent / f"greyhound-{os.getuid()}-{job}.0.0.n0"
    others = left.with_name(f"greyhound-{os.getuid()}-{second_jobs + 10_000}.0.0.n0")
    own = subprocess.Popen(["sleep", "600"], env=second.env())
    try:
        left.mkdir()
        others.mkdir()
        second.down()
        assert own.poll() is None
        assert not left.exists() and others.exists()
    finally:
        own.kill()
        own.wait()
        others.rmdir()
    assert remains(second.layout) == []
    assert sandbox.is_up() and sandbox.srun("true").returncode == 0


def test_down_from_inside_the_sandbox(name, cli, remains):
    layout = Sandbox.up(name, nodes=1).layout
    inside = [*cli, "sandbox", "run", "--name", name, "--", *cli, "sandbox", "down", "--name", name]
    answer = subprocess.run(inside, capture_output=True, text=True, timeout=60)
    assert (answer.returncode, "is down" in answer.stdout) == (0, True), answer.stderr
    assert remains(layout) == []


def test_down_after_a_killed_slurmctld_ends_the_orphaned_job(name, remains):
    broken = Sandbox.up(name, nodes=1)
    job = broken.submit("--output=/dev/null", "--wrap", f"echo $$ > {broken.layout.records}/pid; sleep 600")
    pid = int(until((broken.layout.records / "pid").exists) and until((broken.layout.records / "pid").read_text))
    os.kill(next(one.pid for one in broken.state.processes if one.name == "slurmctld"), 9)
    until(lambda: not broken.is_up())
    with pytest.raises(cluster.SandboxError, match="broken \\(ended: slurmctld\\)"):
        Sandbox.get(name)
    broken.down()
    assert remains(broken.layout) == [], f"job {job}"
    assert not os.path.exists(f"/proc/{pid}/exe")


def test_up_after_a_killed_up(name, cli, remains):
    """KILL `up` while half of the daemons run: their orphans go before the next start."""
    killed = subprocess.Popen([*cli, "sandbox", "up", "--name", name, "--nodes", "1"], stdout=subprocess.DEVNULL)
    try:
        half = until(lambda: (found := Sandbox.find(name)) and len(found.state.processes) >= 2 and found)
    finally:
        killed.kill()
        killed.wait()
    said = []
    again = Sandbox.up(name, nodes=1, say=said.append)
    assert any("crashed" in line for line in said)
    assert not {one.pid for one in again.state.processes} & {one.pid for one in half.state.processes}
    assert again.srun("true").returncode == 0
    again.down()
    assert remains(again.layout) == []


def test_a_failing_daemon_takes_everything_down_and_shows_its_log(name, monkeypatch, remains, tmp_path):
    fake = tmp_path / "slurmdbd"
    fake.write_text("#!/bin/sh\necho fatal: out of luck; exit 3\n")
    fake.chmod(0o755)
    real = cluster.programs.require
    monkeypatch.setattr(cluster.programs, "require", lambda *, redis: real(redis=redis) | {"slurmdbd": str(fake)})
    with pytest.raises(cluster.SandboxError, match=r"(?s)slurmdbd ended with status 3.*fatal: out of luck"):
        Sandbox.up(name, nodes=1)
    assert remains(cluster.Layout(name)) == []


def test_a_daemon_beyond_loopback_takes_everything_down(name, monkeypatch, remains):
    templates = cluster.config.templates
    text = templates.SLURM_CONF.template.replace("CommunicationParameters=NoCtldInAddrAny,NoInAddrAny\n", "")
    monkeypatch.setattr(templates, "SLURM_CONF", templates.Template(text))
    with pytest.raises(cluster.SandboxError, match=r"not on loopback only: .*\d+ \(pid \d+\)"):
        Sandbox.up(name, nodes=1)
    assert remains(cluster.Layout(name)) == []
