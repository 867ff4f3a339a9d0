"""`greyhound sandbox` where no sandbox is up: each command says so and names the mend."""

import os

import pytest
from click.testing import CliRunner

from greyhound.cli.main import main

NAME = f"none-{os.getpid()}"


def run(*arguments):
    return CliRunner().invoke(main, ["sandbox", *arguments])


def test_a_command_is_not_run_without_a_sandbox(tmp_path):
    done = run("run", "--name", NAME, "--", "touch", str(tmp_path / "ran"))
    assert done.exit_code == 1
    assert f"`greyhound sandbox up --name {NAME}` starts it" in done.output + done.stderr
    assert list(tmp_path.iterdir()) == []


def test_down_of_what_is_not_up_is_harmless():
    done = run("down", "--name", NAME)
    assert (done.exit_code, f"no sandbox {NAME}" in done.output) == (0, True)


@pytest.mark.parametrize("name", ["", "Upper", "a/b", "x" * 30, "-x"])
def test_a_name_that_is_none_is_refused_with_its_text(name):
    done = run("up", f"--name={name}")
    assert done.exit_code != 0
    assert repr(name) in done.output + done.stderr
    assert "Traceback" not in done.output + done.stderr
