"""What the site allows at most, and its kill switch: as pure C under sanitizers, then in a cluster."""

import os

import pytest

from tests.spank.rig import TRAIN, Rig
from tests.spank.test_decide import SHOW, watched


@pytest.mark.sanitizer
@pytest.mark.parametrize(
    ("asked", "site", "text", "said"),
    [
        ("on", [], "on", ""),
        (
            "on,threshold=0.5",
            ["max_mode=observe"],
            "observe,threshold=0.5",
            "on was asked for, the site allows observe",
        ),
        ("observe", ["max_mode=observe"], "observe", ""),
        ("off", ["max_mode=observe"], "off", ""),
        ("observe", ["max_mode=off"], "off", "observe was asked for, the site allows off (max_mode=off)"),
        ("on", ["max_mode=observe", "max_mode=on"], "observe", "on was asked for"),
        ("on", ["freeze=never", "s4=never"], "on,freeze=never,s4=never", ""),
        ("on,freeze=optin", ["freeze=optin"], "on,freeze=optin", ""),
        ("on,freeze=optin", ["freeze=never"], "on,freeze=never", "freeze=optin was asked for, the site allows never"),
        ("on,freeze=never", ["freeze=optin"], "on,freeze=never", ""),
        ("on,s4=allow", ["max_mode=observe", "s4=never"], "observe,s4=never", "; s4=allow was asked for"),
    ],
)
def test_everything_can_only_be_lowered(unit, asked, site, text, said):
    lowered, line = unit("lower", asked, *site).lines
    assert lowered == text
    assert said in line if said else line == ""


@pytest.mark.sanitizer
@pytest.mark.parametrize(
    ("argument", "text"),
    [("max_mode=Observe", "off"), ("max_mode=", "off"), ("freeze=no", "on,freeze=never"), ("s4=off", "on,s4=never")],
)
def test_slip_of_the_pen_lifts_no_ceiling(unit, argument, text):
    warning, lowered, _ = unit("lower", "on", argument).lines
    assert warning.startswith(f'warning plugstack.conf: "{argument}" isn\'t understood: use ')
    assert lowered == text


@pytest.mark.sanitizer
@pytest.mark.parametrize(
    ("partition", "account", "allow", "answer"),
    [
        ("p", "a", [], "admitted"),
        ("p", "a", ["allow=partition:p"], "admitted"),
        ("q", "a", ["allow=partition:p+q"], "admitted"),
        ("q", "a", ["allow=partition:p", "allow=partition:q"], "admitted"),
        ("r", "a", ["allow=partition:p+q"], "not enabled for partition r by the site"),
        ("p", "a", ["allow=partition:p,account:a+b"], "admitted"),
        ("p", "c", ["allow=partition:p,account:a+b"], "not enabled for account c by the site"),
        ("p", "", ["allow=account:a"], "not enabled for account (none) by the site"),
        ("p+q", "a", ["allow=partition:p+q"], "not enabled for partition p+q by the site"),
        ("gpu", "a", ["allow=partition:xgpu+gpux"], "not enabled for partition gpu by the site"),
    ],
)
def test_who_is_allowed(unit, partition, account, allow, answer):
    assert unit("admits", partition, account, *allow).lines == [answer]


@pytest.mark.sanitizer
@pytest.mark.parametrize(
    "bad",
    ["", "p", "partition", "partition:", "partition:a++b", "partition:+a", "queue:a", "partition:a,", "account:a+"],
)
def test_allow_that_cannot_be_read_allows_nobody(unit, bad):
    warning, answer = unit("admits", "a", "a", "allow=partition:a", f"allow={bad}").lines
    assert "nobody is allowed until then" in warning
    assert answer == "not enabled by the site (its allow= can't be read)"


@pytest.mark.sanitizer
def test_mute_file_is_told_by_its_first_line(unit, tmp_path):
    file = tmp_path / "mute"
    assert unit("mute", str(file)).lines == ["not muted"]
    file.write_text("")
    assert unit("mute", str(file)).lines == [""]
    file.write_text("driver \x1b[31m update until 18:00\nmore\n")
    assert unit("mute", str(file)).lines == ["driver ?[31m update until 18:00"]
    file.write_text("x" * 5000)
    assert unit("mute", str(file)).lines == ["x" * 255]


@pytest.mark.sanitizer
def test_mute_file_that_would_block_is_a_mute_file(unit, tmp_path):
    os.mkfifo(tmp_path / "mute")
    assert unit("mute", str(tmp_path / "mute")).lines == [""]


@pytest.mark.sanitizer
def test_mute_file_has_a_place_of_its_own(unit):
    assert "mute_file=/etc/greyhound/mute" in unit("site", "/own").lines
    assert "mute_file=/m" in unit("site", "/own", "mute_file=/m").lines
    assert "mute_file=/etc/greyhound/mute" in unit("site", "/own", "mute_file=m").lines


@pytest.mark.cluster
def test_site_ceiling_holds_in_the_cluster(rig: Rig):
    rig.plugstack(f"python={rig.python}", "max_mode=observe", "freeze=never", "default=on")
    done = rig.srun("--greyhound=on,freeze=optin", "/bin/sh", "-c", TRAIN)
    said = "on was asked for, the site allows observe (max_mode=observe)"
    assert done.stderr.count(said) == 1
    assert done.stderr.count("freeze=optin was asked for, the site allows never") == 1
    (record,) = rig.records()
    assert (record.option("--mode"), "freeze=never" in record.arguments) == ("observe", True)
    assert "max_mode=observe" in record.arguments
    default = rig.srun(*SHOW)
    assert (watched(default.stdout), default.stderr) == ([True], "")


@pytest.mark.cluster
def test_node_holds_its_own_ceiling_against_a_forged_decision(rig: Rig, tmp_path):
    """srun with a plugstack.conf of the user's own, which has no ceiling: the nodes read the site's."""
    layout = rig.sandbox.layout
    rig.plugstack(f"python={rig.python}")
    free, conf = tmp_path / "plugstack.conf", tmp_path / "slurm.conf"
    free.write_text(layout.plugstack.read_text())
    conf.write_text(layout.conf.read_text().replace(str(layout.plugstack), str(free)))
    rig.plugstack(f"python={rig.python}", "max_mode=observe")
    done = rig.run("env", f"SLURM_CONF={conf}", "srun", "-Q", "--greyhound=on", "/bin/sh", "-c", TRAIN)
    assert "node 0: on was asked for, the site allows observe" in done.stderr
    (record,) = rig.records()
    assert record.option("--mode") == "observe"


@pytest.mark.cluster
def test_partition_that_is_not_allowed_is_off(rig: Rig):
    forged = {"SLURM_JOB_PARTITION": "gold", "SLURM_PARTITION_NAME": "gold", "SLURM_JOB_ACCOUNT": "vip"}
    rig.plugstack(f"python={rig.python}", "allow=partition:gold", "default=observe")
    refused = "greyhound: unmonitored: not enabled for partition main by the site"
    done = rig.srun("-N2", "--greyhound=on", *SHOW, env=forged)
    assert (done.returncode, watched(done.stdout)) == (0, [False, False])
    assert done.stderr.splitlines()[-1].endswith(refused) and done.stderr.count("unmonitored") == 1
    by_default = rig.srun(*SHOW, env=forged)
    assert (watched(by_default.stdout), by_default.stderr) == ([False], "")
    output = rig.batch(
        "--greyhound=on", script="export SLURM_JOB_PARTITION=gold\nsrun " + "/bin/sh -c '" + SHOW[2] + "'"
    )
    assert watched(output) == [False] and refused in output
    rig.plugstack(f"python={rig.python}", "allow=partition:gold+main")
    assert watched(rig.srun("--greyhound=on", *SHOW, env=forged).stdout) == [True]


@pytest.mark.cluster
def test_nothing_starts_while_the_site_mutes(rig: Rig):
    mute = rig.records_dir.parent / "mute"
    rig.plugstack(f"python={rig.python}", f"mute_file={mute}")
    mute.write_text("driver update\n")
    try:
        done = rig.srun("-N2", "--greyhound=on", *SHOW)
        assert (done.returncode, watched(done.stdout)) == (0, [False, False])
        assert done.stderr.count(f"unmonitored: muted by the site ({mute}: driver update)") == 1
        assert len(done.stderr.splitlines()) == 1
    finally:
        mute.unlink()
    assert watched(rig.srun("--greyhound=on", *SHOW).stdout) == [True]
