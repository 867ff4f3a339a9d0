"""The waiter's and the node process's life with the step, their identity, and every way to end."""

import contextlib
import os
import re
import subprocess
import time
from pathlib import Path

import pytest

from tests.spank.rig import NOBODY, STOP, TRAIN, Rig, until

pytestmark = pytest.mark.cluster

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="Slurm switches users only as root")


def test_a_step_without_a_communicator_starts_no_python_and_leaves_nothing(rig: Rig):
    done = rig.srun("-N2", "--greyhound=on", "hostname")
    assert (done.returncode, len(done.stdout.split()), done.stderr) == (0, 2, "")
    assert rig.records() == []
    rig.assert_nothing_left()


def test_the_first_ring_starts_the_node_process_as_documented(rig: Rig):
    rig.plugstack(f"python={rig.python}", "record_dir=/site/records", "redis_server=/site/redis-server")
    done = rig.srun("-N2", "--ntasks-per-node=2", "--greyhound=observe,threshold=0.2,warmup=7", "/bin/sh", "-c", TRAIN)
    assert (done.returncode, done.stderr) == (0, "")
    records = sorted(rig.records(), key=lambda record: record.option("--node-index"))
    assert [record.option("--node-index") for record in records] == ["0", "1"]
    for index, record in enumerate(records):
        job = record.option("--job")
        assert record.arguments == [
            "-I", "-m", "greyhound.control.node",
            "--step-dir", f"/dev/shm/greyhound-{os.getuid()}-{job}.0.0.n{index}",
            "--node-list", "n[1-2]", "--node-index", str(index), "--node-count", "2",
            "--job", job, "--step", "0", "--restart", "0", "--tasks", "2", "--mode", "observe",
            "--option", "threshold=0.2", "--option", "warmup=7", "--option", "mute_file=/etc/greyhound/mute",
            "--record-dir", "/site/records", "--redis-server", "/site/redis-server",
        ]  # fmt: skip
        assert record.told_to_stop


def test_the_user_s_record_dir_wins_over_the_site_s(rig: Rig):
    rig.plugstack(f"python={rig.python}", "record_dir=/site")
    rig.srun("--greyhound=on,record_dir=/mine", "/bin/sh", "-c", TRAIN)
    assert [record.option("--record-dir") for record in rig.records()] == ["/mine"]


def test_the_node_process_gets_the_token_and_a_scrubbed_environment(rig: Rig):
    spoiled = {"PYTHONPATH": "/evil", "PYTHONHOME": "/evil", "LD_LIBRARY_PATH": "/evil", "HOME": "/evil"}
    rig.srun("-N2", "--greyhound=on", "/bin/sh", "-c", TRAIN, env=spoiled)
    first, second = rig.records()
    for record in (first, second):
        allowed = {"PATH", "HOME", "USER", "LANG", "SLURM_CONF", "GREYHOUND_TOKEN"}
        assert set(record.environment) - {"PWD", "SHLVL", "_"} <= allowed
        assert record.environment["HOME"] != "/evil"
        assert not [word for word in record.arguments if record.environment["GREYHOUND_TOKEN"] in word]
    token = first.environment["GREYHOUND_TOKEN"]
    assert re.fullmatch("[0-9a-f]{64}", token)
    assert second.environment["GREYHOUND_TOKEN"] == token


def test_every_srun_draws_a_new_token(rig: Rig):
    mine = {"SLURM_GREYHOUND_TOKEN": "0" * 64, "SLURM_GREYHOUND_SPEC": "on"}
    for _ in range(2):
        rig.srun("--greyhound=on", "/bin/sh", "-c", TRAIN, env=mine)
    tokens = {record.environment["GREYHOUND_TOKEN"] for record in rig.records()}
    assert len(tokens) == 2
    assert "0" * 64 not in tokens


@needs_root
def test_all_of_it_runs_as_the_job_s_user(rig: Rig):
    look = f"stat -c 'owner %u %a' $GREYHOUND_DIR; {TRAIN}"
    done = rig.run(*NOBODY, "srun", "-Q", "--greyhound=on", "/bin/sh", "-c", look)
    assert done.stdout.splitlines()[0] == "owner 65534 700"
    [record] = rig.records()
    assert record.facts["Uid"].split() == ["65534"] * 4
    assert record.facts["Gid"].split() == ["65534"] * 4
    assert set(record.facts["Groups"].split()) <= {"65534"}
    assert record.environment["USER"] == "nobody"
    assert "-65534-" in record.option("--step-dir")


@pytest.mark.parametrize(
    ("command", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -KILL $$", 137), ("kill -SEGV $$", 139)]
)
@pytest.mark.parametrize("mode", ["off", "on"])
def test_exit_codes_are_those_of_the_job(rig: Rig, mode, command, code):
    assert rig.srun(f"--greyhound={mode}", "/bin/sh", "-c", command).returncode == code


def test_two_steps_at_once_on_one_node(rig: Rig):
    both = "touch $GREYHOUND_DIR/ring.1.1; sleep 0.5; echo $GREYHOUND_DIR"
    script = f"for i in 1 2; do srun -n1 -w n1 --overlap --greyhound=on /bin/sh -c '{both}' & done; wait"
    output = rig.batch("-n4", script=script)
    paths = set(re.findall(r"/dev/shm/\S+", output))
    assert {path.rsplit(".", 3)[1] for path in paths} == {"0", "1"}
    assert {record.option("--step-dir") for record in rig.records()} == paths


def test_a_cancelled_step_leaves_nothing(rig: Rig):
    process = subprocess.Popen(
        ["srun", "-N2", "--greyhound=on", "/bin/sh", "-c", f"{TRAIN}; exec sleep 60"],
        env=rig.sandbox.env(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: len(rig.records()) == 2, "both node processes run")
    job = rig.records()[0].option("--job")
    rig.run("scancel", job)
    _, errors = process.communicate(timeout=30)
    assert "unmonitored" not in errors
    rig.assert_nothing_left()


def test_a_signal_to_the_whole_step_does_not_end_the_waiter(rig: Rig):
    script = f"trap '' USR1; scancel -s USR1 $SLURM_JOB_ID.$SLURM_STEP_ID; sleep 0.3; {TRAIN}"
    rig.srun("--greyhound=on", "/bin/sh", "-c", script)
    assert len(rig.records()) == 1


def test_term_to_the_whole_step_ends_the_watch_only_with_the_training(rig: Rig):
    """The training saves its state on TERM and goes on; so does the watch, until the step's end."""
    term = "scancel -s TERM $SLURM_JOB_ID.$SLURM_STEP_ID; until [ $got ]; do sleep 0.02; done"
    script = f"trap got=1 TERM; {TRAIN}; {term}; sleep 0.5; ls -d $GREYHOUND_DIR"
    done = rig.srun("--greyhound=on", "/bin/bash", "-c", script)
    assert done.returncode == 0
    assert "greyhound:" not in done.stderr  # Slurm and the shell say that they were sent TERM
    assert done.stdout.startswith("/dev/shm/greyhound-")
    [record] = rig.records()
    assert record.told_to_stop


def test_a_killed_slurmstepd_takes_the_waiter_along(rig: Rig):
    command = ["srun", "--greyhound=on", "/bin/sh", "-c", "echo $PPID; exec sleep 60"]
    process = subprocess.Popen(command, env=rig.sandbox.env(), stdout=subprocess.PIPE, text=True)
    assert process.stdout
    stepd = int(process.stdout.readline())
    until(rig.leftovers, "the waiter runs")
    children = [int(pid) for pid in Path(f"/proc/{stepd}/task/{stepd}/children").read_text().split()]
    os.kill(stepd, 9)
    until(lambda: not rig.leftovers(), "the waiter ended")
    process.kill()
    process.communicate()
    for pid in children:  # the task itself, which nothing of ours started
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 9)


def test_a_node_process_that_dies_early_is_said_with_its_last_words(rig: Rig, folder: Path):
    broken = folder / "broken-python"
    broken.write_text("#!/bin/sh\necho 'No module named greyhound' >&2\nexit 1\n")
    broken.chmod(0o755)
    rig.plugstack(f"python={broken}")
    train = (
        "touch $GREYHOUND_DIR/ring.1.1; until grep -qs module $GREYHOUND_DIR/node.log; do sleep 0.05; done; sleep 0.2"
    )
    done = rig.srun("--greyhound=on", "/bin/sh", "-c", f"{train}; exit 3")
    assert done.returncode == 3
    assert "unmonitored: node 0: the node process ended before the tasks: No module named greyhound" in done.stderr


def test_a_node_process_that_does_not_stop_is_killed(rig: Rig, folder: Path):
    stubborn = folder / "stubborn-python"
    stubborn.write_text(f"#!/bin/sh\ntrap '' {STOP}\necho ready\nwhile :; do sleep 0.05; done\n")
    stubborn.chmod(0o755)
    rig.plugstack(f"python={stubborn}")
    train = "touch $GREYHOUND_DIR/ring.1.1; until grep -qs ready $GREYHOUND_DIR/node.log; do sleep 0.05; done"
    begun = time.monotonic()
    done = rig.srun("--greyhound=on", "/bin/sh", "-c", train)
    assert done.returncode == 0
    assert "did not end in 2000 ms and was killed" in done.stderr
    assert time.monotonic() - begun < 30  # bounded at all, not a speed
    rig.assert_nothing_left()


def test_a_node_process_that_ends_tidily_by_itself_is_no_trouble(rig: Rig, folder: Path):
    leaving = folder / "leaving-python"
    leaving.write_text('#!/bin/sh\nrm -r "$5"\n')
    leaving.chmod(0o755)
    rig.plugstack(f"python={leaving}")
    train = "touch $GREYHOUND_DIR/ring.1.1; while test -e $GREYHOUND_DIR; do sleep 0.02; done; sleep 0.2"
    done = rig.srun("--greyhound=on", "/bin/sh", "-c", train)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("moment", ["while it ran", "at its end"])
def test_a_note_is_shown_however_the_node_process_ended(rig: Rig, folder: Path, moment):
    """Node 0 opens no ring, so that node 1 finds no master."""
    lonely = folder / "lonely-python"
    before, after = ("echo no master > $5/unmonitored", 'rm -r "$5"')
    if moment == "at its end":
        before, after = ":", "echo no master > $5/unmonitored; exit 1"
    wait = f"trap '{after}; exit 0' {STOP}\necho started\nwhile :; do sleep 0.05; done\n"
    lonely.write_text(f"#!/bin/sh\n{before}\n{wait}")
    lonely.chmod(0o755)
    rig.plugstack(f"python={lonely}")
    train = f"[ $SLURM_NODEID = 0 ] || {{ {TRAIN}; }}"
    done = rig.srun("-N2", "--greyhound=on", "/bin/sh", "-c", train)
    assert done.returncode == 0
    assert done.stderr.splitlines() == ["greyhound: unmonitored: node 1: no master"]


def test_a_requeued_job_has_another_restart_count(rig: Rig):
    requeue = "[ -n \"$SLURM_RESTART_COUNT\" ] || { trap '' TERM; scontrol requeue $SLURM_JOB_ID; sleep 60; }"
    script = f"srun --export=NONE /bin/sh -c 'PATH=/bin:/usr/bin; {TRAIN}'\n{requeue}"
    job = rig.sandbox.submit("--greyhound=on", "--requeue", "-o", "/dev/null", rig.script(script))
    until(lambda: len(rig.records()) == 2, "the second run of the job", limit_s=60)
    rig.sandbox.wait(job)
    assert {record.option("--restart") for record in rig.records()} == {"0", "1"}
    assert {record.option("--step-dir").split(".", 1)[1] for record in rig.records()} == {"0.0.n0", "0.1.n0"}
