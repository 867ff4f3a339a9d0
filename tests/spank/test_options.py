"""The option's table, the site's arguments, LD_PRELOAD and the step directory, under sanitizers."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.spank.rig import build_hook

pytestmark = pytest.mark.sanitizer

ALLOWED = (
    "(modes: on, observe, off; keys: threshold=0.02..1.0, warmup=5..1000, record_dir=ABSOLUTE_PATH, "
    "freeze=never|optin, s4=never|allow)"
)


@pytest.mark.parametrize("mode", ["on", "observe", "off"])
def test_a_mode_alone_is_taken(unit, mode):
    assert unit("spec", mode).lines == [f"mode={mode}"]


@pytest.mark.parametrize(
    "pair",
    [
        "threshold=0.02",
        "threshold=1",
        "threshold=1.0",
        "threshold=0.1000004",
        "threshold=0.30000000000000004",
        "warmup=5",
        "warmup=1000",
        "record_dir=/a b/c",
        "freeze=never",
        "freeze=optin",
        "s4=allow",
    ],
)
def test_a_value_at_the_edge_is_taken(unit, pair):
    assert unit("spec", f"on,{pair}").lines == ["mode=on", pair]


def test_all_keys_in_any_order(unit):
    answer = unit("spec", "observe,record_dir=/r,warmup=20,threshold=0.5")
    assert answer.lines == ["mode=observe", "threshold=0.5", "warmup=20", "record_dir=/r"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("bogus", 'unknown mode "bogus"'),
        ("", 'unknown mode ""'),
        ("ON", 'unknown mode "ON"'),
        ("on ", 'unknown mode "on "'),
        ("threshold=0.1", 'unknown mode "threshold=0.1"'),
        ("on,", 'expected key=value, got ""'),
        ("on,,warmup=5", 'expected key=value, got ""'),
        ("on,fast", 'expected key=value, got "fast"'),
        ("on,speed=1", 'unknown key "speed'),
        ("on,threshold=", 'value not allowed: "threshold="'),
        ("on,threshold=0.0199999", 'value not allowed: "threshold=0.0199999"'),
        ("on,threshold=1.00000000001", 'value not allowed: "threshold=1.00000000001"'),
        ("on,threshold=-0.1", 'value not allowed: "threshold=-0.1"'),
        ("on,threshold=1e-1", 'value not allowed: "threshold=1e-1"'),
        ("on,threshold=nan", 'value not allowed: "threshold=nan"'),
        ("on,threshold=.1", 'value not allowed: "threshold=.1"'),
        ("on,threshold=99999999999999999999", 'value not allowed: "threshold=99999999999999999999"'),
        ("on,freeze=always", 'value not allowed: "freeze=always"'),
        ("on,s4=optin", 'value not allowed: "s4=optin"'),
        ("on,warmup=4", 'value not allowed: "warmup=4"'),
        ("on,warmup=1001", 'value not allowed: "warmup=1001"'),
        ("on,warmup=10.5", 'value not allowed: "warmup=10.5"'),
        ("on,warmup=99999999999999999999", 'value not allowed: "warmup=99999999999999999999"'),
        ("on,record_dir=here", 'value not allowed: "record_dir=here"'),
        ("on,record_dir=/a\nb", 'value not allowed: "record_dir=/a?b"'),
        ("on,warmup=10,warmup=10", 'key given twice: "warmup=10"'),
        ("on,record_dir=/" + "x" * 1100, "value not allowed:"),
        ("on," + "x" * 5000, "longer than 2047 bytes:"),
    ],
)
def test_a_bad_option_is_refused_with_its_text_and_the_allowed(unit, text, complaint):
    answer = unit("spec", text)
    assert answer.code == 1
    assert len(answer.lines) == 1
    assert complaint in answer.lines[0]
    assert answer.lines[0].endswith(ALLOWED)


def test_a_terminal_escape_is_not_echoed(unit):
    assert "\x1b" not in unit("spec", "\x1b[31mred").lines[0]


def test_site_prefix_gives_python_and_native(unit):
    lines = unit("site", "/own", "prefix=/opt/gh").lines
    assert lines[:2] == ["python=/opt/gh/bin/python", "native=/opt/gh/lib/greyhound"]
    assert lines[-1] == "mode=off"


def test_site_special_arguments_win_over_prefix_in_any_order(unit):
    lines = unit("site", "/own", "python=/p", "prefix=/opt/gh", "native=/n", "record_dir=/r", "redis_server=/s").lines
    assert lines[:4] == ["python=/p", "native=/n", "record_dir=/r", "redis_server=/s"]


def test_site_without_arguments_uses_the_plugin_s_own_folder(unit):
    assert unit("site", "/own").lines[:2] == ["python=", "native=/own"]


def test_site_default(unit):
    assert unit("site", "/own", "default=observe,warmup=7").lines[-2:] == ["mode=observe", "warmup=7"]


@pytest.mark.parametrize("argument", ["default=maybe", "python=relative", "prefix=", "spare=1", "prefix"])
def test_site_bad_argument_is_ignored_with_one_warning(unit, argument):
    lines = unit("site", "/own", argument, "record_dir=/r").lines
    warnings = [line for line in lines if line.startswith("warning")]
    assert len(warnings) == 1
    assert f'ignoring "{argument}"' in warnings[0]
    assert "record_dir=/r" in lines
    assert lines[-1] == "mode=off"


@pytest.mark.parametrize(
    ("hook", "old", "new"),
    [
        ("/h/libgreyhound_hook.so", "", "/h/libgreyhound_hook.so"),
        ("/h/libgreyhound_hook.so", "a.so b.so:c.so", "/h/libgreyhound_hook.so:a.so:b.so:c.so"),
        ("/h/libgreyhound_hook.so", "a.so:/old/libgreyhound_hook.so", "/h/libgreyhound_hook.so:a.so"),
        ("-", "/old/libgreyhound_hook.so:a.so", "a.so"),
        ("-", " : ", ""),
        ("-", "libgreyhound_hook.so.bak:notlibgreyhound_hook.so", "libgreyhound_hook.so.bak:notlibgreyhound_hook.so"),
    ],
)
def test_preload_puts_our_hook_first_once_and_keeps_the_others(unit, hook, old, new):
    assert unit("preload", hook, old).lines == [new]


def test_a_good_hook_is_accepted(unit, tmp_path):
    build_hook(tmp_path)
    assert unit("check", str(tmp_path / "libgreyhound_hook.so"), "/bin/sh").lines == ["accepted"]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("none.so", None, "is missing or can't be read there"),
        ("bad.so", "no library", "file too short"),
        ("a b.so", "", "blank or a colon"),
    ],
)
def test_a_hook_that_cannot_be_loaded_is_refused(unit, tmp_path, name, content, reason):
    if content is not None:
        (tmp_path / name).write_text(content)
    answer = unit("check", str(tmp_path / name), "/bin/sh")
    assert answer.code == 1
    assert str(tmp_path / name) in answer.lines[0]
    assert reason in answer.lines[0]


def test_a_program_that_cannot_be_run_is_named(unit, tmp_path):
    build_hook(tmp_path)
    answer = unit("check", str(tmp_path / "libgreyhound_hook.so"), "/nowhere/python")
    assert (answer.code, answer.lines) == (1, ["/nowhere/python: No such file or directory"])


def test_a_file_system_that_hangs_does_not_hold_the_step(unit, tmp_path):
    """The loader waits for ever for a writer of the pipe; the check does not."""
    os.mkfifo(tmp_path / "libgreyhound_hook.so")
    answer = unit("check", str(tmp_path / "libgreyhound_hook.so"), "/bin/sh")
    assert (answer.code, "took more than 2 s" in answer.lines[0]) == (1, True)


def test_step_directory_is_private_and_replaces_a_dead_one(unit, step_dir):
    (step_dir / "ring.1.2").write_text("old")
    (step_dir / "sub").mkdir()
    (step_dir / "sub" / "file").write_text("old")
    assert unit("stepdir", str(step_dir)).lines == ["made"]
    assert list(step_dir.iterdir()) == []
    assert step_dir.stat().st_mode & 0o7777 == 0o700


def test_step_directory_of_a_living_step_is_left_alone(unit, step_dir):
    holder = subprocess.Popen([unit.program, "hold", step_dir], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout.readline() == b"made\n"
    (step_dir / "ring.1.2").write_text("in use")
    assert "still running" in unit("stepdir", str(step_dir)).lines[0]
    assert (step_dir / "ring.1.2").exists()
    holder.communicate(b"\n", timeout=10)
    assert unit("stepdir", str(step_dir)).lines == ["made"]


def test_step_directory_never_follows_a_link(unit, step_dir, tmp_path):
    (tmp_path / "precious").write_text("keep")
    (step_dir / "link").symlink_to(tmp_path)
    link = Path(f"{step_dir}-link")
    link.symlink_to(tmp_path)
    try:
        assert "not a directory of this user" in unit("stepdir", str(link)).lines[0]
        assert unit("stepdir", str(step_dir)).lines == ["made"]
    finally:
        link.unlink()
    assert (tmp_path / "precious").read_text() == "keep"


@pytest.mark.skipif(os.getuid() != 0, reason="another user's directory needs root")
def test_step_directory_of_another_user_is_left_alone(unit, step_dir):
    os.chown(step_dir, 65534, 65534)
    assert "not a directory of this user" in unit("stepdir", str(step_dir)).lines[0]
    assert step_dir.exists()


def test_last_line_is_cut_and_made_printable(unit, step_dir):
    (step_dir / "node.log").write_text("first\n" + "\x1b[31m" + "y" * 100 + "\n\n")
    line = unit("line", str(step_dir), "node.log").lines[0]
    assert line == "?[31m" + "y" * 58
    (step_dir / "link").symlink_to("/etc/passwd")
    assert unit("line", str(step_dir), "link").code == 1
