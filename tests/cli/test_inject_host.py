"""`greyhound inject` of late input, slow storage, CPU contention and hung ranks, on a page of the test's own."""

import os
import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner

from greyhound.cli.inject_host import is_stopped
from greyhound.cli.main import main
from greyhound.sandbox import cpu_quota
from greyhound.sandbox.page import StandinPage
from tests.sandbox.test_cpu_quota import kernel_allows

RANK = """
import mmap, os, sys, time
with open(os.environ["GREYHOUND_STANDIN_PAGE"], "rb") as file:
    page = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    print("ready", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def page(tmp_path):
    path = tmp_path / "greyhound-inject-test.page"
    StandinPage.create(path, ["n1:0", "n1:1", "n2:0"]).close()
    return path


@pytest.fixture
def rank(page):
    """A process that uses the page as a rank on n1:1 does."""
    environment = {**os.environ, "GREYHOUND_STANDIN_PAGE": str(page), "GREYHOUND_STANDIN_NODE": "n1", "LOCAL_RANK": "1"}
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    with subprocess.Popen([sys.executable, "-c", RANK], env=environment, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        yield process
        process.send_signal(signal.SIGCONT)
        process.kill()


def run(*arguments):
    return CliRunner().invoke(main, ["inject", *map(str, arguments)])


def test_input_and_storage_and_their_healing(page):
    assert run("input", "n1:1", "--delay", "300ms", "--page", page).exit_code == 0
    assert run("storage", "--delay", "2", "--page", page).exit_code == 0
    with StandinPage.open(page) as opened:
        assert opened.inputs() == {"n1:0": 0.0, "n1:1": 0.3, "n2:0": 0.0}
        assert opened.storage_s() == 2.0
        assert run("heal", "--page", page).exit_code == 0
        assert set(opened.inputs().values()) == {0.0}
        assert opened.storage_s() == 0.0


def test_a_fault_that_ends_by_itself(page):
    answer = run("storage", "--delay", "2", "--for", "0.01s", "--page", page)
    assert answer.exit_code == 0
    assert "storage healed" in answer.output
    with StandinPage.open(page) as opened:
        assert opened.storage_s() == 0.0


def test_all_gpus_at_once(page):
    assert run("gpu", "all", "--speed", "0.8", "--page", page).exit_code == 0
    with StandinPage.open(page) as opened:
        assert set(opened.gpus().values()) == {0.8}


def test_a_hung_rank_goes_on_when_healed(page, rank):
    answer = run("hang", "n1:1", "--page", page)
    assert answer.exit_code == 0, answer.output
    assert str(rank.pid) in answer.output
    assert is_stopped(rank.pid)
    assert run("heal", "--page", page).exit_code == 0
    assert not is_stopped(rank.pid)


@pytest.mark.skipif(not kernel_allows(), reason="no writable cpu controller of cgroup v1")
def test_a_cpu_quota_and_its_end(page, rank):
    controller = cpu_quota.find_controller()
    before = cpu_quota.cgroup_of(rank.pid, controller)
    answer = run("cpu", "n1", "--quota", "0.5", "--page", page)
    assert answer.exit_code == 0, answer.output
    assert "n1: 0.5 cores for its 1 ranks" in answer.output
    assert cpu_quota.cgroup_of(rank.pid, controller) != before
    assert run("heal", "--page", page).exit_code == 0
    assert cpu_quota.cgroup_of(rank.pid, controller) == before


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("hang", "n2:0"), "no rank of .* runs on GPU 'n2:0'"),
        (("cpu", "n2", "--quota", "0.5"), "no rank of .* runs on node 'n2'"),
        (("cpu", "n1", "--quota", "0"), "no rank|quota 0"),
        (("input", "n9:0", "--delay", "1s"), "no GPU 'n9:0'"),
        (("storage", "--delay", "1e9s"), "give a number|seconds"),
    ],
)
def test_what_cannot_be_injected_is_refused(page, arguments, text):
    import re

    answer = run(*arguments, "--page", page)
    assert answer.exit_code == 2
    assert re.search(text, answer.output), answer.output
