"""`greyhound report` where accounting is missing, silent, dying or wrong: a clear word, and the rest of the report."""

import csv
import getpass
import io
import json
import os

import pytest
from click.testing import CliRunner

from greyhound.cli.report import command
from greyhound.control.events import EventLog
from greyhound.control.names import StepName
from greyhound.slurm import client
from greyhound.slurm.accounting import COLUMNS
from tests.report.test_records import BEGAN_S, OVER, SLOW

# Plays sacct: prints rows (a tab stands for the delimiter) and does what the test wants.
SACCT = """#!/bin/sh
for word in "$@"; do case "$word" in --delimiter=*) delimiter="${word#--delimiter=}" ;; esac; done
sed "s/\\t/$delimiter/g" "$(dirname "$0")/rows"
echo "$@" > "$(dirname "$0")/asked"
"""
ME = getpass.getuser()


def row(job, **changes):
    cells = {"JobIDRaw": job, "JobID": job, "User": ME, "State": "COMPLETED", "JobName": "train"}
    cells |= {"Submit": "1767225500", "Start": "1767225600", "End": "1767226600", "ElapsedRaw": "1000"}
    cells |= {"NodeList": "n[1-2]", "AllocTRES": "gres/gpu=4"}
    return "\t".join({**cells, **changes}.get(name, "") for name in COLUMNS) + "\n"


def record(root, job, restart=0, start_s=BEGAN_S, end=True, node_list="n[1-2]"):
    folder = root / "records" / str(job) / f"0.{restart}"
    folder.mkdir(parents=True)
    log = EventLog(folder / "events.jsonl", StepName(str(job), "0", restart))
    log.append("start", start_s, {"mode": "observe", "node_list": node_list})
    log.append("tracking", start_s + 10, {"ranks": 4})
    log.append("suspect", start_s + 44, SLOW, "e1", 44)
    if end:
        data = {"iterations": 300, "healthy_s": 1.0, "tracked": 4, "episodes": [{"id": "e1", **OVER}]}
        log.append("end", start_s + 1000, data)


class Site:
    """A folder with records, and a sacct that is played."""

    def __init__(self, root):
        self.root = root
        self.bin = root / "bin"
        self.bin.mkdir()
        self.sacct()

    def sacct(self, *rows, then=""):
        (self.bin / "rows").write_text("".join(rows))
        (self.bin / "sacct").write_text(SACCT + then + "\n")
        (self.bin / "sacct").chmod(0o755)

    def report(self, *options):
        environment = {"PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}"}
        arguments = ["--record-dir", str(self.root / "records"), *options]
        return CliRunner().invoke(command, arguments, env=environment)

    def json(self, *options):
        done = self.report("--format=json", *options)
        return done, json.loads(done.stdout)


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


def test_without_sacct_the_records_are_shown_and_marked(site, monkeypatch):
    monkeypatch.setattr(client, "SEARCH", "")
    monkeypatch.setenv("PATH", str(site.bin))
    (site.bin / "sacct").unlink()
    record(site.root, 7)
    record(site.root, 7, restart=1, start_s=BEGAN_S + 5000, end=False)
    done, found = site.json("--since=2026-01-01")
    assert done.exit_code == 1 and "the report is incomplete: no sacct in" in done.stderr
    assert "2 runs are shown as their records have them" in done.stderr
    assert [(r["job"], r["restart"], r["user"], r["accounted"], r["record"]) for r in found["rows"]] == [
        ("7", 0, ME, False, "ended"),
        ("7", 1, ME, False, "killed"),
    ]
    assert found["rows"][0]["lost_s"] == 30.0 and found["rows"][0]["nodes"] == ["n1", "n2"]
    assert found["rows"][0]["elapsed_s"] == 1000.0
    assert found["totals"]["not_accounted"] == 2 and "no sacct" in found["incomplete"]
    table = site.report("--since=2026-01-01")
    assert "(record)" in table.stdout and "2 known from their records alone" in table.stdout
    groups = site.report("--since=2026-01-01", "--by=user")
    assert ME in groups.stdout and groups.exit_code == 1


@pytest.mark.parametrize(
    ("options", "jobs"),
    [
        ((), []),  # as with sacct: since midnight
        (("--since=2026-01-01",), ["7", "8"]),
        (("--since=2026-01-02",), ["8"]),
        (("--since=2026-01-01", "--until=2026-01-03"), ["7"]),
        (("--since=2026-01-01", "--nodes=n9"), ["8"]),
        (("--since=2026-01-01", "--user=nobody"), []),
        (("--jobs=7",), ["7"]),
    ],
)
def test_records_alone_are_chosen_as_sacct_would(site, options, jobs):
    site.sacct(then="exit 1")
    record(site.root, 7)
    record(site.root, 8, start_s=BEGAN_S + 4 * 86_400, node_list="n9")
    done, found = site.json(*options)
    assert done.exit_code == 1 and "sacct failed: exit code 1" in done.stderr
    assert [r["job"] for r in found["rows"]] == jobs


def test_a_silent_sacct_is_given_up(site):
    site.sacct(row("7"), then="exec sleep 600")
    record(site.root, 7)
    record(site.root, 8)
    done, found = site.json("--since=2026-01-01", "--patience=0.5")
    assert done.exit_code == 1 and "said nothing for 0.5 s" in done.stderr
    assert [(r["job"], r["accounted"]) for r in found["rows"]] == [("7", True), ("8", False)]


def test_a_sacct_that_dies_in_the_middle_leaves_what_it_said(site):
    site.sacct(row("7"), row("8")[:20], then="echo 'slurmdbd is gone' >&2; exit 1")
    record(site.root, 7)
    record(site.root, 8)
    done, found = site.json("--since=2026-01-01")
    assert done.exit_code == 1 and "the report is incomplete: sacct failed: slurmdbd is gone" in done.stderr
    assert [(r["job"], r["accounted"]) for r in found["rows"]] == [("7", True), ("8", False)]
    assert any("columns, not 17" in problem for problem in found["totals"]["problems"])


def test_a_sacct_that_is_killed_is_told(site):
    site.sacct(row("7"), then="kill -9 $$")
    done, found = site.json("--since=2026-01-01")
    assert done.exit_code == 1 and "sacct failed: exit code -9" in done.stderr
    assert [r["job"] for r in found["rows"]] == ["7"]


def test_a_row_that_cannot_be_read_costs_only_itself(site):
    site.sacct(row("7"), row("8", JobID="eight"), row("9"))
    done, found = site.json("--since=2026-01-01")
    assert done.exit_code == 0 and "eight" in done.stderr
    assert [r["job"] for r in found["rows"]] == ["7", "9"]


def test_an_unknown_job_is_named(site):
    site.sacct(row("7"))
    done, found = site.json("--jobs=7,123456")
    assert done.exit_code == 1 and "accounting knows no job 123456" in done.stderr
    assert [r["job"] for r in found["rows"]] == ["7"]
    assert "--jobs=7,123456" in (site.bin / "asked").read_text()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--since=2026-02-30"], "'2026-02-30' is no point in time"),
        (["--until=tomorrow-ish"], "'tomorrow-ish' is no point in time"),
        (["--since=now-99999999days"], "before all time"),
        (["--since=2026-05-01", "--until=2026-04-01"], "lies after --until"),
        (["--jobs=12x"], "job id '12x'"),
        (["--nodes=n[1-"], "'[' is not closed"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_asked(site, options, said):
    done = site.report(*options)
    assert done.exit_code == 2 and said in " ".join(done.stderr.split())
    assert not (site.bin / "asked").exists()


def test_a_slow_sacct_is_waited_for(site):
    site.sacct(row("7"), then="sleep 0.4; echo; sleep 0.4; exit 0")
    record(site.root, 7)
    done, found = site.json("--since=2026-01-01", "--patience=1")
    assert [r["job"] for r in found["rows"]] == ["7"]
    assert done.exit_code == 0 and found["incomplete"] is None


def damaged(events):
    lines = events.read_text().splitlines()
    events.write_text("\n".join(["\x00\xff{", *lines, lines[0][:30]]))


def truncated(events):
    events.write_bytes(events.read_bytes()[:-40])


def of_the_future(events):
    events.write_text(events.read_text().replace('"v":1', '"v":2'))


def foreign_owned(events):
    if os.getuid() != 0:
        pytest.skip("needs root, to give a file away")
    os.chown(events, 65534, 65534)


def a_folder(events):
    events.unlink()
    events.mkdir()


def a_link(events):
    events.rename(events.with_name("elsewhere"))
    events.symlink_to(events.with_name("elsewhere"))


def empty(events):
    events.write_bytes(b"")


@pytest.mark.parametrize(
    ("harm", "monitored", "state", "lost_s", "said"),
    [
        (damaged, True, "ended", 30.0, "2 damaged lines"),
        (truncated, True, "killed", None, "1 damaged lines"),
        (of_the_future, False, "killed", None, "events of another release passed over: use a newer greyhound"),
        (foreign_owned, False, None, None, "belong to another user"),
        (a_folder, False, "unreadable", None, "not a regular file"),
        (a_link, False, "unreadable", None, "symbolic links"),
        (empty, False, "killed", None, ""),
    ],
)
def test_a_bad_event_file_costs_only_its_own_record(site, harm, monitored, state, lost_s, said):
    site.sacct(row("7"), row("8"), row("9"))
    record(site.root, 7)
    record(site.root, 8)
    harm(site.root / "records" / "7" / "0.0" / "events.jsonl")
    done, found = site.json("--since=2026-01-01")
    bad, good, none = found["rows"]
    assert done.exit_code == 0 and said in done.stderr
    assert (bad["monitored"], bad["record"]) == (monitored, state)
    assert bad["fail_slows"] == int(monitored) and (lost_s is None or bad["lost_s"] == lost_s)
    assert monitored or bad["why_not"]
    assert (good["job"], good["monitored"], good["lost_s"]) == ("8", True, 30.0)
    assert "no record" in none["why_not"]
    assert [site.report("--since=2026-01-01", f"--by={by}").exit_code for by in ("job", "user")] == [0, 0]


def test_the_csv_of_a_report_from_records_has_all_columns(site):
    site.sacct(then="exit 1")
    record(site.root, 7)
    done = site.report("--format=csv", "--since=2026-01-01")
    (found,) = csv.DictReader(io.StringIO(done.stdout))
    assert (found["job"], found["accounted"], found["state"]) == ("7", "False", "UNKNOWN")
