"""`greyhound collect`: whose AdminComment gets a line, and whose text stays; sacct and sacctmgr are played."""

import json
import os

import pytest
from click.testing import CliRunner

from greyhound.cli.collect import command
from tests.report.test_trouble import SACCT, Site, record, row

# Keeps AdminComments in files, as slurmdbd would; asked for one job alone it prints that.
ASKED_ONE = """case "$*" in *--format=AdminComment*)
  for word in "$@"; do case "$word" in --jobs=*) cat "$(dirname "$0")/comment.${word#--jobs=}" 2>/dev/null ;; esac; done
  exit 0 ;;
esac
"""
SACCTMGR = """#!/bin/sh
echo "$@" >> "$(dirname "$0")/modified"
[ -e "$(dirname "$0")/refuse" ] && { echo "Access/permission denied" >&2; exit 1; }
for word in "$@"; do case "$word" in JobID=*) job="${word#*=}" ;; AdminComment=*) text="${word#*=}" ;; esac; done
printf '%s\\n' "$text" > "$(dirname "$0")/comment.$job"
"""
LINE = "greyhound: 1 fail-slow, 90 s, 1.50x"


class Accounts(Site):
    """Accounting that remembers what is written."""

    def sacct(self, *rows, then=""):
        super().sacct(*rows, then=then)
        (self.bin / "sacct").write_text(SACCT.replace("for word", ASKED_ONE + "for word", 1) + then + "\n")
        (self.bin / "sacctmgr").write_text(SACCTMGR)
        (self.bin / "sacctmgr").chmod(0o755)

    def collect(self, *options):
        environment = {"PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}"}
        arguments = ["--since=2026-01-01", "--record-dir", str(self.root / "records"), *options]
        return CliRunner().invoke(command, arguments, env=environment)

    def comment(self, job):
        path = self.bin / f"comment.{job}"
        return path.read_text().strip() if path.exists() else ""

    @property
    def modified(self):
        path = self.bin / "modified"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def site(tmp_path):
    return Accounts(tmp_path)


def test_ended_jobs_with_a_record_get_their_line_once(site):
    site.sacct(row("7"), row("8", End="Unknown", State="RUNNING"), row("9"))
    record(site.root, 7)
    record(site.root, 8)
    done = site.collect()
    assert done.exit_code == 0, done.output
    assert (site.comment(7), site.comment(8), site.comment(9)) == (LINE, "", "")
    site.sacct(row("7", AdminComment=LINE))
    again = site.collect("--json")
    found = json.loads(again.stdout)
    assert (found["written"], found["already"], len(site.modified)) == (0, 1, 1)


def test_a_dry_run_writes_nothing(site):
    site.sacct(row("7"))
    record(site.root, 7)
    done = site.collect("--dry-run")
    assert done.exit_code == 0 and f"job 7: {LINE} (not written" in done.stdout and not site.modified


@pytest.mark.parametrize("text", ["{jobmon: 1}", f"x; {LINE}", f"{LINE}; x", "greyhound: please", "a\nb"])
def test_anothers_text_stays(site, text):
    site.sacct(row("7", AdminComment=text))
    record(site.root, 7)
    done = site.collect("--json")
    assert json.loads(done.stdout)["others"] == 1 and done.exit_code == 0 and not site.modified


def test_a_text_that_came_in_between_stays(site):
    site.sacct(row("7"))
    (site.bin / "comment.7").write_text("jobmon\n")
    record(site.root, 7)
    done = site.collect("--json")
    assert json.loads(done.stdout)["others"] == 1 and not site.modified and site.comment(7) == "jobmon"


def test_an_older_line_of_ours_is_brought_up_to_date_with_all_runs(site):
    site.sacct(
        row("7", AdminComment="greyhound: no fail-slow", Start="1767230000", End="1767232000"),
        row("7", State="REQUEUED"),
    )
    record(site.root, 7)
    record(site.root, 7, restart=1, start_s=1767230001.0)
    assert site.collect().exit_code == 0
    assert site.comment(7) == "greyhound: 2 fail-slow, 3 min, 1.50x"


def test_a_refusal_ends_it_and_is_told(site):
    site.sacct(row("7"), row("8"))
    (site.bin / "refuse").touch()
    record(site.root, 7)
    record(site.root, 8)
    done = site.collect()
    assert done.exit_code == 1 and "Access/permission denied" in done.stderr and len(site.modified) == 1


def test_without_accounting_nothing_is_written(site):
    site.sacct(then="echo gone >&2; exit 1")
    record(site.root, 7)
    done = site.collect()
    assert done.exit_code == 1 and "gone" in done.stderr and not site.modified
