"""`greyhound inject` on a page of the test's own; real GPUs are not touched."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from greyhound.cli import inject
from greyhound.cli.main import main
from greyhound.sandbox import page as page_module
from greyhound.sandbox.page import Link, StandinPage


@pytest.fixture
def page(tmp_path):
    path = tmp_path / "standin.page"
    StandinPage.create(path, ["n1:0", "n1:1", "n2:0"]).close()
    return path


def run(*arguments):
    return CliRunner().invoke(main, ["inject", *map(str, arguments)])


def speeds(path):
    with StandinPage.open(path) as opened:
        return opened.gpus()


def links(path):
    with StandinPage.open(path) as opened:
        return opened.links()


def test_gpu_slow_and_healed(page):
    answer = run("gpu", "n1:1", "--speed", 0.5, "--page", page)
    assert answer.exit_code == 0, answer.output
    assert speeds(page) == {"n1:0": 1.0, "n1:1": 0.5, "n2:0": 1.0}
    assert run("heal", "--page", page).exit_code == 0
    assert set(speeds(page).values()) == {1.0}


def test_page_from_the_environment(page, monkeypatch):
    monkeypatch.setenv("GREYHOUND_STANDIN_PAGE", str(page))
    assert run("gpu", "n2:0", "--speed", 0.8).exit_code == 0
    assert speeds(page)["n2:0"] == 0.8


def test_link_both_ways_and_one_way(page):
    answer = run("link", "n1:0", "n2:0", "--bandwidth", "50MB/s", "--latency", "5ms", "--page", page)
    assert answer.exit_code == 0, answer.output
    assert links(page) == [Link("n1:0", "n2:0", 50e6, 0.005), Link("n2:0", "n1:0", 50e6, 0.005)]
    run("heal", "--page", page)
    assert run("link", "n1:0", "n1:1", "--latency", "5ms", "--one-way", "--page", page).exit_code == 0
    assert links(page) == [Link("n1:0", "n1:1", 0.0, 0.005)]


def test_for_heals_afterwards(page):
    answer = run("gpu", "n1:0", "--speed", 0.5, "--for", "50ms", "--page", page)
    assert answer.exit_code == 0
    assert "at speed 0.5" in answer.output and "healed" in answer.output
    assert speeds(page)["n1:0"] == 1.0
    assert run("link", "n1:0", "n1:1", "--latency", "1ms", "--for", "0.05", "--page", page).exit_code == 0
    assert links(page) == []


@pytest.fixture
def heard():
    """Signals as a terminal's programs have them; who runs the tests may ignore some (nohup)."""
    before = {signum: signal.signal(signum, signal.SIG_DFL) for signum in (signal.SIGTERM, signal.SIGHUP)}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for signum, handler in before.items():
        signal.signal(signum, handler)


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_for_heals_when_interrupted(page, signum):
    greyhound = Path(sys.executable).with_name("greyhound")
    command = [greyhound, "inject", "gpu", "n1:0", "--speed", "0.5", "--for", "10m", "--page", page]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert "at speed 0.5" in process.stdout.readline()
    process.send_signal(signum)
    out, _ = process.communicate(timeout=30)
    assert "healed" in out
    assert speeds(page)["n1:0"] == 1.0


@pytest.mark.parametrize("trouble", [OSError("stdout is gone"), RuntimeError("unheard of")])
def test_trouble_after_the_fault_was_made_is_healed(trouble):
    done = []

    def act():
        done.append("act")
        raise trouble

    with pytest.raises(type(trouble)):
        inject.inject_for(60.0, act, lambda: done.append("heal"))
    assert done == ["act", "heal"]


@pytest.mark.usefixtures("heard")
def test_signals_during_the_healing_do_not_end_it():
    done = []

    def heal():
        for signum in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), signum)
        done.append("healed")

    before = signal.getsignal(signal.SIGTERM)
    inject.inject_for(60.0, lambda: os.kill(os.getpid(), signal.SIGHUP), heal)
    assert done == ["healed"]
    assert signal.getsignal(signal.SIGTERM) is before


def test_hang_up_that_is_ignored_stays_so(monkeypatch):
    done = []
    old = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        inject.inject_for(0.0, lambda: os.kill(os.getpid(), signal.SIGHUP), lambda: done.append("healed"))
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, old)
    assert done == ["healed"]


def test_refused_fault_is_refused_once(page):
    before = page.read_bytes()
    answer = run("gpu", "n9:0", "--speed", "0.5", "--for", "10m", "--page", page)
    assert (answer.exit_code, answer.output.count("no GPU")) == (2, 1)
    assert page.read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["gpu", "n9:0", "--speed", "0.5"], "n1:0, n1:1, n2:0"),
        (["gpu", "n1:0", "--speed", "0"], "0.001 to 100"),
        (["gpu", "n1:0", "--speed", "fast"], "fast"),
        (["gpu", "n1:0", "--speed", "0.5", "--for", "soon"], "soon"),
        (["link", "n1:0", "n1:0", "--latency", "5ms"], "two different"),
        (["link", "n1:0", "n2:0", "--bandwidth", "50MB"], "50MB/s or 400Gb/s"),
        (["link", "n1:0", "n2:0", "--latency", "5"], "like 20us or 5ms"),
        (["link", "n1:0", "n2:0"], "--bandwidth, --latency or both"),
    ],
)
def test_bad_input_names_the_text_and_changes_nothing(page, arguments, part):
    before = page.read_bytes()
    answer = run(*arguments, "--page", page)
    assert answer.exit_code == 2
    assert part in answer.output
    assert page.read_bytes() == before


def test_no_such_page(tmp_path):
    answer = run("gpu", "n1:0", "--speed", "0.5", "--page", tmp_path / "none")
    assert answer.exit_code == 2
    assert str(tmp_path / "none") in answer.output


@pytest.fixture
def no_page(tmp_path, monkeypatch):
    monkeypatch.delenv("GREYHOUND_STANDIN_PAGE", raising=False)
    monkeypatch.setattr(page_module, "existing", list)
    monkeypatch.setattr(page_module, "SHM", tmp_path)


def test_only_a_page_of_ones_own_is_found(no_page, page, tmp_path):
    name = f"greyhound-standin-{os.getuid()}-%d.page"
    (tmp_path / (name % 1)).symlink_to(page)
    if os.geteuid() == 0:
        foreign = tmp_path / (name % 2)
        foreign.write_bytes(page.read_bytes())
        os.chown(foreign, 12345, 12345)
    assert "no stand-in page" in run("heal").output
    page.rename(tmp_path / (name % 3))
    assert run("heal").exit_code == 0


def test_real_hardware_is_refused(no_page):
    answer = run("gpu", "n1:0", "--speed", "0.5")
    assert answer.exit_code == 2
    assert "--yes-real" in answer.output and "nvidia-smi -i 0 -rgc" in answer.output
    answer = run("link", "n1:0", "n2:0", "--latency", "5ms")
    assert answer.exit_code == 2
    assert "other jobs share it" in answer.output
    assert "nvidia-smi -rgc" in run("heal").output


def test_real_gpu_is_locked_and_unlocked_by_nvidia_smi(no_page, tmp_path, monkeypatch):
    log = tmp_path / "log"
    fake = tmp_path / "nvidia-smi"
    fake.write_text(f'#!/bin/sh\necho "$@" >> {log}\ncase "$*" in *query*) echo 1980;; esac\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    answer = run("gpu", "localhost:3", "--speed", "0.5", "--yes-real", "--for", "10ms")
    assert answer.exit_code == 0, answer.output
    assert "undo: nvidia-smi -i 3 -rgc" in answer.output
    assert log.read_text().splitlines()[1:] == ["-i 3 -lgc 990,990", "-i 3 -rgc"]
    assert "run this command there" in run("gpu", "elsewhere:3", "--speed", "0.5", "--yes-real").output


def test_real_gpu_is_unlocked_after_an_answer_that_came_too_late(no_page, tmp_path, monkeypatch):
    log = tmp_path / "log"
    fake = tmp_path / "nvidia-smi"
    fake.write_text(f'#!/bin/sh\necho "$@" >> {log}\ncase "$*" in *query*) echo 1980;; *lgc*) exec sleep 60;; esac\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(inject, "SMI_TIMEOUT_S", 1)
    answer = run("gpu", "localhost:3", "--speed", "0.5", "--yes-real", "--for", "10m")
    assert answer.exit_code == 1
    assert "timed out" in answer.output
    assert log.read_text().splitlines()[1:] == ["-i 3 -lgc 990,990", "-i 3 -rgc"]


def test_without_nvidia_smi(no_page, monkeypatch):
    monkeypatch.setattr(inject.shutil, "which", lambda name: None)
    answer = run("gpu", "localhost:0", "--speed", "0.5", "--yes-real")
    assert answer.exit_code == 2
    assert "no nvidia-smi" in answer.output
