"""Who decides whether a step is watched: command line, environment, site; and what its tasks then see."""

import re

import pytest

from tests.spank.rig import HOOK, TRAIN, Rig

pytestmark = pytest.mark.cluster

SHOW = ("/bin/sh", "-c", 'echo "dir=$GREYHOUND_DIR index=$GREYHOUND_NODE_INDEX preload=$LD_PRELOAD"')


def watched(output: str) -> list[bool]:
    """One answer for each line that SHOW printed."""
    return ["dir=/dev/shm/greyhound-" in line for line in output.splitlines() if line.startswith("dir=")]


@pytest.mark.parametrize("command", ["srun", "sbatch", "salloc"])
def test_help_shows_the_option(rig: Rig, command):
    assert "--greyhound=on|observe|off[,key=value...]" in rig.run(command, "--help").stdout


@pytest.mark.parametrize("command", ["srun", "sbatch", "salloc"])
@pytest.mark.parametrize("text", ["bogus", "on,speed=2", "on,threshold=7"])
def test_a_bad_command_line_is_refused_at_submission(rig: Rig, command, text):
    done = rig.run(command, f"--greyhound={text}", "--wrap=true" if command == "sbatch" else "/bin/true")
    assert done.returncode != 0
    assert f'--greyhound="{text}"' in done.stderr
    assert "modes: on, observe, off; keys: threshold=0.02..1.0, warmup=5..1000, record_dir=ABSOLUTE_PATH" in done.stderr


@pytest.mark.parametrize(
    ("site", "environment", "option", "expected"),
    [
        (None, None, None, False),
        (None, None, "on", True),
        (None, None, "observe,warmup=5", True),
        (None, None, "off", False),
        (None, "on", None, True),
        (None, "on", "off", False),
        (None, "off", "on", True),
        ("on", None, None, True),
        ("on", "off", None, False),
        ("on", None, "off", False),
        ("off", "observe", None, True),
    ],
)
def test_command_line_beats_environment_beats_site(rig: Rig, site, environment, option, expected):
    rig.plugstack(f"python={rig.python}", *([f"default={site}"] if site else []))
    options = [f"--greyhound={option}"] if option else []
    done = rig.srun(*options, *SHOW, env={"GREYHOUND": environment} if environment else {})
    assert (done.returncode, watched(done.stdout), done.stderr) == (0, [expected], "")


def test_a_bad_environment_is_said_once_and_ignored(rig: Rig):
    done = rig.srun("-N2", *SHOW, env={"GREYHOUND": "perhaps"})
    assert (done.returncode, watched(done.stdout)) == (0, [False, False])
    assert done.stderr.count('ignoring the environment\'s GREYHOUND="perhaps": unknown mode "perhaps"') == 1
    assert len(done.stderr.splitlines()) == 1


def test_a_bad_environment_does_not_disturb_a_good_command_line(rig: Rig):
    done = rig.srun("--greyhound=on", *SHOW, env={"GREYHOUND": "perhaps"})
    assert (watched(done.stdout), done.stderr) == ([True], "")


def test_a_bad_site_argument_is_said_once_and_ignored(rig: Rig):
    rig.plugstack(f"python={rig.python}", "default=maybe", "spare=1")
    done = rig.srun("-N2", "--greyhound=on", *SHOW)
    assert watched(done.stdout) == [True, True]
    assert done.stderr.count('plugstack.conf: ignoring "default=maybe"') == 1
    assert done.stderr.count('plugstack.conf: ignoring "spare=1"') == 1


def test_sbatch_is_inherited_and_an_inner_option_wins(rig: Rig):
    show = " ".join(SHOW[:2]) + f" '{SHOW[2]}'"
    script = f"{show}\nsrun {show}\nsrun --export=NONE {show}\nsrun --greyhound=off {show}\nGREYHOUND=off srun {show}\n"
    output = rig.batch("--greyhound=on", script=script)
    batch_step, *steps = watched(output)
    assert not batch_step
    assert "preload=\n" in output.splitlines(keepends=True)[0]
    assert steps == [True, True, False, True]


def test_salloc_is_inherited(rig: Rig):
    done = rig.run("salloc", "-Q", "--greyhound=observe", "srun", *SHOW)
    assert watched(done.stdout) == [True]


@pytest.mark.parametrize("export", ["ALL", "NONE", "PATH", "PATH,LD_PRELOAD=libm.so.6"])
def test_the_decision_and_the_token_pass_every_export(rig: Rig, export):
    done = rig.srun("--greyhound=on", f"--export={export}", *SHOW)
    assert (watched(done.stdout), done.stderr) == ([True], "")


def test_tasks_see_our_variables_and_no_token(rig: Rig):
    done = rig.srun("-N2", "--greyhound=on", "/usr/bin/env", env={"LD_PRELOAD": "libm.so.6 libdl.so.2"})
    lines = done.stdout.splitlines()
    assert lines.count(f"LD_PRELOAD={rig.native / HOOK}:libm.so.6:libdl.so.2") == 2
    assert {line for line in lines if line.startswith("GREYHOUND_NODE_INDEX=")} == {
        "GREYHOUND_NODE_INDEX=0",
        "GREYHOUND_NODE_INDEX=1",
    }
    assert not [line for line in lines if "TOKEN" in line or "SLURM_GREYHOUND" in line]
    assert not re.search(r"\b[0-9a-f]{64}\b", done.stdout)


@pytest.mark.parametrize(("inner", "expected"), [("on", True), ("off", False)])
def test_an_srun_inside_a_watched_step_has_its_own_or_nothing(rig: Rig, inner, expected):
    nested = f"echo outer=$GREYHOUND_DIR; srun --overlap --greyhound={inner} /usr/bin/env"
    lines = rig.batch(script=f"srun -n1 --greyhound=on --overlap /bin/sh -c '{nested}'").splitlines()
    outer = next(line for line in lines if line.startswith("outer=")).removeprefix("outer=")
    inside = [line.partition("=")[2] for line in lines if line.startswith("GREYHOUND_DIR=")]
    preloads = [line.partition("=")[2] for line in lines if line.startswith("LD_PRELOAD=")]
    assert inside == ([outer.replace(".0.0.n0", ".1.0.n0")] if expected else [])
    assert preloads == ([str(rig.native / HOOK)] if expected else [])


ALLOCATED = ("salloc", "-Q", "-n1", ":", "-n1")


@pytest.mark.parametrize(
    "command",
    [
        ("srun", "-Q", "-n1", "--greyhound=on", *SHOW, ":", "-n1", *SHOW),
        ("srun", "-Q", "-n1", *SHOW, ":", "-n1", "--greyhound=on", *SHOW),
        (*ALLOCATED, "srun", "--greyhound=on", "--het-group=0,1", *SHOW),
        (*ALLOCATED, "env", "GREYHOUND=on", "srun", "--het-group=0,1", *SHOW),
    ],
)
def test_a_step_with_several_components_is_not_watched_and_says_so_once(rig: Rig, command):
    done = rig.run(*command)
    assert (done.returncode, watched(done.stdout)) == (0, [False, False])
    said = [line for line in done.stderr.splitlines() if "greyhound" in line]
    assert said == ["greyhound: unmonitored: heterogeneous steps are not supported"]


@pytest.mark.parametrize("group", [(), ("--het-group=0",), ("--het-group=1",)])
def test_a_step_in_one_component_of_a_heterogeneous_job_is_watched(rig: Rig, group):
    done = rig.run(*ALLOCATED, "srun", "--greyhound=on", *group, "/bin/sh", "-c", f"{TRAIN}; {SHOW[2]}")
    assert (done.returncode, watched(done.stdout), done.stderr) == (0, [True], "")
    [record] = rig.records()
    assert (record.option("--node-index"), record.option("--node-count")) == ("0", "1")
    assert record.option("--node-list") == ("n2" if group == ("--het-group=1",) else "n1")
