"""The archive for a support request: complete, and without secrets."""

import os
import stat
import tarfile

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from greyhound.cli.bundle import command
from greyhound.report.bundle import REDACTED, Part, redact, write

TOKEN = "ab" * 32


def record(root):
    folder = root / "records" / "local-77" / "0.0"
    folder.mkdir(parents=True)
    (folder / "events.jsonl").write_text('{"v":1,"kind":"start","data":{}}\n')
    (folder / "greyhound.log").write_text(f"started with {TOKEN}\nGREYHOUND_TOKEN=abc password: hunter2\n")
    (folder / "status.json").write_text("{}")
    return folder


def bundle(root, *options):
    arguments = ["local-77", "--record-dir", str(root / "records"), "-o", str(root / "out.tar.gz"), *options]
    return CliRunner().invoke(command, arguments)


def test_the_archive_has_the_records_and_no_secret(tmp_path):
    record(tmp_path)
    done = bundle(tmp_path)
    assert done.exit_code == 0, done.output
    with tarfile.open(tmp_path / "out.tar.gz") as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
        texts = [archive.extractfile(entry).read().decode() for entry in archive.getmembers()]
    assert {"versions.json", "record/0.0/events.jsonl", "record/0.0/greyhound.log", "doctor.json"} <= names
    everything = "".join(texts)
    assert TOKEN not in everything and "hunter2" not in everything and REDACTED in everything
    assert stat.S_IMODE((tmp_path / "out.tar.gz").stat().st_mode) == 0o600


def test_an_archive_is_never_overwritten(tmp_path):
    record(tmp_path)
    (tmp_path / "out.tar.gz").write_text("mine")
    done = bundle(tmp_path)
    assert done.exit_code == 1 and "there already" in done.output
    assert (tmp_path / "out.tar.gz").read_text() == "mine"


def test_links_and_fifos_in_a_record_are_not_followed(tmp_path):
    folder = record(tmp_path)
    (tmp_path / "private").write_text("private")
    (folder / "node.log").symlink_to(tmp_path / "private")
    os.mkfifo(folder / "unmonitored")
    assert bundle(tmp_path).exit_code == 0
    with tarfile.open(tmp_path / "out.tar.gz") as archive:
        texts = {entry.name: archive.extractfile(entry).read().decode() for entry in archive.getmembers()}
    assert not any(text == "private" for text in texts.values())
    assert sum(name.endswith(".unreadable") for name in texts) == 2


def test_an_unknown_job_is_told(tmp_path):
    done = CliRunner().invoke(command, ["999999", "--record-dir", str(tmp_path)])
    assert done.exit_code == 2 and "nothing is known of job" in done.output


@pytest.mark.parametrize("text", ["Password=x1", "token: x1", '"api_key": "x1"', "MY_SECRET_TOKEN=x1"])
def test_named_secrets_are_removed(text):
    assert "x1" not in redact(text)


@given(st.text("0123456789abcdef", min_size=40, max_size=80))
def test_long_hex_is_removed(secret):
    assert secret not in redact(f"seen {secret}.")


def test_a_broken_archive_does_not_stay(tmp_path):
    def parts():
        yield Part("a", "text")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError):
        write(tmp_path / "out.tar.gz", parts(), "top")
    assert list(tmp_path.iterdir()) == []
