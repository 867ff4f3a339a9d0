"""Finds the records of a job: where it may lie, which step and run of it is the newest, and its live status."""

import contextlib
import glob
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from greyhound.config import DEFAULT_RECORD_DIR, SITE_FILE, Settings, load_site
from greyhound.control import step_lock
from greyhound.control.events import utc
from greyhound.control.files import open_to_read
from greyhound.control.names import SHM, StepName, parse_step_dir
from greyhound.control.status import FILE, RECORD_PERIOD_S, read_status

SILENT_S = 3 * RECORD_PERIOD_S
_LOCAL = re.compile(r"local-(\d{1,10})(?:\.(\d{1,10}))?", re.ASCII)
_RUN = re.compile(r"(.+)\.(\d{1,10})", re.ASCII)


class LookupFailedError(LookupError):
    """No such job here, or text that is no job id; the message names where it looked."""


@dataclass(frozen=True)
class Wanted:
    """What the user asked for: a job, maybe a step of it."""

    job: str
    step: str | None


@dataclass(frozen=True)
class Run:
    """One run of one step: its record folder (None: gone or not made yet) and its live step directory (None: ended)."""

    name: StepName
    record: Path | None
    live: Path | None
    changed_s: float

    def is_silent(self, now_s: float) -> bool:
        """Whether nobody writes its record any more: no word for long, and no step here that holds its directory."""
        return now_s - self.changed_s > SILENT_S and not self._is_held()

    def _is_held(self) -> bool:
        uid = _uid_in_name(self.live) if self.live else None
        return self.live is not None and uid is not None and step_lock.is_held(self.live, uid)

    def last_words(self, now_s: float) -> str:
        """`no last word since TIME` of a run that nobody writes any more, though it never said that it ended."""
        if not self.is_silent(now_s):
            return ""
        return f"killed: no last word since {utc(self.changed_s)[:19].replace('T', ' ')} UTC"

    def looked_at_again(self) -> "Run":
        """The same run as its files are now; without `live` once its step directory is gone."""
        live = self.live if self.live is not None and self.live.is_dir() else None
        return replace(self, live=live, changed_s=_changed_s(self.record, live))

    def status(self) -> tuple[dict[str, Any] | None, bool]:
        """The status and whether it is the live one; the record copy where there is no live one."""
        live = read_status(self.live / FILE, _uid_in_name(self.live)) if self.live else None
        if live is not None:
            return live, True
        return (read_status(self.record / FILE) if self.record else None), False


def parse_job(text: str) -> Wanted:
    """`JOB[.STEP]` with a Slurm job id or `local-PID`; LookupFailedError for anything else."""
    match = _LOCAL.fullmatch(text)
    if match:
        return Wanted(f"local-{match[1]}", match[2])
    from greyhound.slurm import jobid

    try:
        parsed = jobid.parse(text)
    except jobid.JobIdError as error:
        raise LookupFailedError(f"{error}; or local-PID, as `greyhound launch` printed it") from None
    return Wanted(str(replace(parsed, step=None, step_het_offset=None)), _step_text(parsed.step))


def _step_text(step: int | str | None) -> str | None:
    return None if step is None else str(step)


def record_roots(
    given: Path | None, environ: Mapping[str, str] | None = None, site_file: Path | None = None
) -> list[Path]:
    """Record directories to look in, in order: the one given alone, else environment, site, default."""
    if given is not None:
        return [given]
    environ = os.environ if environ is None else environ
    named = environ.get("GREYHOUND_RECORD_DIR")
    roots = [Path(named)] if named else []
    site, _ = load_site(Settings(), site_file or SITE_FILE)
    roots += [site.record_path, Path(DEFAULT_RECORD_DIR).expanduser()]
    return distinct(roots)


def distinct(roots: Iterable[Path]) -> list[Path]:
    """Each directory once, whatever links lead to it: a record must not count twice."""
    return list({os.path.realpath(root): root for root in reversed(list(roots))}.values())[::-1]


def _recorded(roots: Iterable[Path], wanted: Wanted) -> dict[StepName, Path]:
    found: dict[StepName, Path] = {}
    for root in roots:
        folder = root / wanted.job
        try:
            entries = [entry for entry in folder.iterdir() if entry.is_dir()]
        except OSError:
            continue
        for entry in entries:
            match = _RUN.fullmatch(entry.name)
            if match is None or wanted.step not in (None, match[1]):
                continue
            name = StepName(wanted.job, match[1], int(match[2]))
            # In a record directory that is open to all, a stranger's folder may bear our job's name.
            if name not in found or (_is_ours(entry) and not _is_ours(found[name])):
                found[name] = entry
    return found


def _uid_in_name(path: Path) -> int | None:
    parsed = parse_step_dir(path)
    return parsed[0] if parsed else None


def _believed(path: Path, uid: int) -> bool:
    """Anybody can make a directory in /dev/shm: it must belong to the user in its name, us unless we are root."""
    if os.geteuid() not in (0, uid):
        return False
    try:
        os.close(open_to_read(path / FILE, uid))
    except OSError:
        return False
    return True


def _live(wanted: Wanted, shm: Path) -> dict[StepName, Path]:
    found = {}
    for path in shm.glob(f"greyhound-*-{glob.escape(wanted.job)}.*"):
        parsed = parse_step_dir(path)
        if parsed is None or not _believed(path, parsed[0]):
            continue
        name = parsed[1]
        if name.job == wanted.job and wanted.step in (None, name.step):
            found[name] = path
    return found


def _changed_s(*folders: Path | None) -> float:
    times = [0.0]
    for folder in folders:
        for name in (FILE, "events.jsonl"):
            if folder is not None:
                with contextlib.suppress(OSError):
                    times.append((folder / name).lstat().st_mtime)
    return max(times)


def _is_ours(path: Path) -> bool:
    return path.lstat().st_uid == os.geteuid()


def find_run(text: str, roots: list[Path], shm: Path = SHM) -> Run:
    """The run that `JOB[.STEP]` means: a live one before ended ones, then the newest."""
    wanted = parse_job(text)
    recorded, live = _recorded(roots, wanted), _live(wanted, shm)
    runs = [
        Run(name, recorded.get(name), live.get(name), _changed_s(recorded.get(name), live.get(name)))
        for name in {*recorded, *live}
    ]
    if not runs:
        places = ", ".join(str(root) for root in roots)
        raise LookupFailedError(
            f"nothing is known of job {text!r}: no step of it lives on this host ({shm}), no record in {places}; "
            "name another record directory with --record-dir"
        )
    return max(runs, key=lambda run: (run.live is not None, run.changed_s, run.name.restart))
