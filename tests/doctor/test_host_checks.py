"""The checks of the host, each seen to fail on what it is for."""

import stat
from pathlib import Path

import pytest

from greyhound.doctor import host_checks, slurm_checks
from greyhound.doctor.finding import Finding, Level, worst
from greyhound.slurm import choose
from greyhound.slurm.client import SlurmError


def program(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_the_real_hook_loads(native):
    assert [finding.level for finding in host_checks.check_hook(native)] == [Level.OK]
    assert [finding.level for finding in host_checks.check_parts(native, native)] == [Level.OK]


def test_a_hook_that_cannot_be_loaded_fails_with_the_loaders_words(tmp_path):
    (tmp_path / "libgreyhound_hook.so").write_text("no ELF")
    (finding,) = host_checks.check_hook(tmp_path)
    assert finding.level is Level.FAIL and finding.mend
    assert "libgreyhound_hook.so" in finding.text
    (missing,) = host_checks.check_hook(tmp_path / "none")
    assert "missing" in missing.text
    (parts,) = host_checks.check_parts(tmp_path, tmp_path)
    assert parts.level is Level.FAIL


@pytest.mark.parametrize(
    ("answer", "level"),
    [
        ("echo 'Redis server v=7.0.15 sha=0'", Level.OK),
        ("echo 'Redis server v=6.0.0 sha=0'", Level.OK),
        ("echo 'Redis server v=5.0.14 sha=0'", Level.FAIL),
        ("echo nonsense; exit 1", Level.FAIL),
    ],
)
def test_redis_must_know_acls(tmp_path, answer, level):
    (finding,) = host_checks.check_redis(str(program(tmp_path / "redis-server", answer)))
    assert finding.level is level


def test_a_missing_redis_names_the_mend():
    (finding,) = host_checks.check_redis("/nowhere/redis-server-of-no-kind")
    assert finding.level is Level.FAIL and "apt install redis-server" in finding.mend


def test_shared_memory_that_is_missing_or_open_is_told(tmp_path):
    assert worst(host_checks.check_shared_memory(tmp_path / "none")) is Level.FAIL
    tmp_path.chmod(0o777)
    assert any("sticky" in finding.text for finding in host_checks.check_shared_memory(tmp_path))


def test_a_record_directory_must_be_writable_and_sticky(tmp_path):
    assert worst(host_checks.check_records(tmp_path / "new")) is Level.OK
    tmp_path.chmod(0o777)
    assert worst(host_checks.check_records(tmp_path)) is Level.WARN
    tmp_path.chmod(0o1777)
    assert worst(host_checks.check_records(tmp_path)) is Level.OK
    (tmp_path / "file").write_text("")
    (finding,) = host_checks.check_records(tmp_path / "file" / "below")
    assert finding.level is Level.FAIL and "install -d" in finding.mend
    assert stat.S_ISDIR(tmp_path.stat().st_mode) and not list(tmp_path.glob(".doctor-*"))


def test_a_shared_record_directory_is_not_made_and_must_be_open_to_users(tmp_path):
    shared = tmp_path / "shared"
    assert worst(host_checks.check_records(shared, is_shared=True)) is Level.FAIL and not shared.exists()
    shared.mkdir(mode=0o755)
    (finding,) = host_checks.check_records(shared, is_shared=True)
    assert finding.level is Level.WARN and "nobody but its owner" in finding.text
    shared.chmod(0o3777)
    assert worst(host_checks.check_records(shared, is_shared=True)) is Level.OK


def test_the_worst_finding_is_the_exit_code():
    assert worst([]) is Level.OK
    assert int(worst([Finding("a", Level.WARN, ""), Finding("b", Level.OK, "")])) == 1


def slurm(tmp_path, **programs):
    """A host whose Slurm commands print what is given."""
    for name, text in programs.items():
        program(tmp_path / name, text)
    return slurm_checks.SlurmHost({"PATH": f"{tmp_path}:/usr/bin:/bin"})


def config(tmp_path, plugstack="", when="$(date +%Y-%m-%dT%H:%M:%S)", flags="job_comment"):
    (tmp_path / "plugstack.conf").write_text(plugstack)
    return (
        f'echo "Configuration data as of {when}"; echo "SLURM_VERSION = 22.05.8"; '
        f'echo "PlugStackConfig = {tmp_path}/plugstack.conf"; echo "AccountingStoreFlags = {flags}"'
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", "none in"),
        ("required {so} prefix=/p\n", "would refuse every job"),
        ("optional /nowhere/spank_greyhound.so\n", "is missing"),
    ],
)
def test_a_bad_plugstack_line_fails_with_its_mend(tmp_path, native, line, words):
    text = line.format(so=native / "spank_greyhound.so")
    (finding,) = slurm_checks.check_line(slurm(tmp_path, scontrol=config(tmp_path, text)))
    assert finding.level is Level.FAIL and words in finding.text and finding.mend


def test_the_stub_of_an_uninstall_is_a_warning(tmp_path, native):
    stub = tmp_path / "spank_greyhound.so"
    stub.write_bytes((native / "spank_greyhound_stub.so").read_bytes())
    (finding,) = slurm_checks.check_line(slurm(tmp_path, scontrol=config(tmp_path, f"optional {stub}\n")))
    assert finding.level is Level.WARN and "stub" in finding.text


def test_the_python_of_the_line_must_have_greyhound(tmp_path, native):
    import sys

    for python, level in ((sys.executable, Level.OK), ("/nowhere/python", Level.FAIL)):
        text = f"optional {native / 'spank_greyhound.so'} python={python}\n"
        (finding,) = slurm_checks.check_python(slurm(tmp_path, scontrol=config(tmp_path, text)))
        assert finding.level is level


def test_two_lines_are_a_warning(tmp_path, native):
    text = f"optional {native / 'spank_greyhound.so'}\n" * 2
    findings = list(slurm_checks.check_line(slurm(tmp_path, scontrol=config(tmp_path, text))))
    assert [finding.level for finding in findings] == [Level.WARN, Level.OK]


def test_a_plugin_of_another_release_fails(tmp_path, native):
    plugin = native / "spank_greyhound.so"
    release = slurm_checks.plugin_release(plugin)
    host = slurm(tmp_path, scontrol=config(tmp_path, f"optional {plugin}\n").replace("22.05.8", f"{release}.1"))
    assert [finding.level for finding in slurm_checks.check_release(host)] == [Level.OK]
    host = slurm(tmp_path, scontrol=config(tmp_path, f"optional {plugin}\n").replace("22.05.8", "99.11.2"))
    (finding,) = slurm_checks.check_release(host)
    assert finding.level is Level.FAIL and "99.11.2" in finding.text


@pytest.mark.parametrize(("when", "level"), [("2020-01-01T00:00:00", Level.FAIL), ("soon", Level.WARN)])
def test_clocks(tmp_path, when, level):
    (finding,) = slurm_checks.check_clock(slurm(tmp_path, scontrol=config(tmp_path, when=when)))
    assert finding.level is level
    (finding,) = slurm_checks.check_clock(slurm(tmp_path, scontrol=config(tmp_path)))
    assert finding.level is Level.OK


def test_the_client_in_use_is_told_with_its_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(choose.importlib.metadata, "version", lambda name: "25.11.2")
    (finding,) = slurm_checks.check_client(slurm(tmp_path, squeue="echo slurm 22.05.8"))
    assert finding.level is Level.OK and "pyslurm 25.11.2 is for another release than slurm 22.05.8" in finding.text


def test_a_missing_option_is_told_for_each_command(tmp_path):
    host = slurm(tmp_path, srun="echo --greyhound=MODE", sbatch="echo nothing", salloc="exit 1")
    assert [finding.level for finding in slurm_checks.check_option(host)] == [Level.OK, Level.FAIL, Level.WARN]


def test_accounting_that_stores_no_comments_is_a_warning(tmp_path):
    host = slurm(tmp_path, scontrol=config(tmp_path, flags="(null)"), sacct="exit 0")
    assert [finding.level for finding in slurm_checks.check_accounting(host)] == [Level.OK, Level.WARN]
    host = slurm(tmp_path, scontrol=config(tmp_path), sacct="echo down >&2; exit 1")
    (finding,) = slurm_checks.check_accounting(host)
    assert finding.level is Level.WARN and "down" in finding.text


def test_a_silent_command_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(slurm_checks, "TIMEOUT_S", 0.2)
    with pytest.raises(SlurmError, match="did not answer"):
        slurm(tmp_path, scontrol="exec sleep 5").config()
