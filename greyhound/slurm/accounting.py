"""Reads sacct: every run of every job, the requeued ones too (sacct(1), --duplicates).

`--parsable2` with a delimiter of our own, not `--json`: that carries all steps (tens of kB a job) and must be held
whole, while these rows are read one by one. The delimiter is random, so that no job name or comment can hold it: a
newline in one of them is no end of a row. A row that can't be read is passed over, and told.
"""

import functools
import re
import secrets
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from greyhound.slurm import jobid
from greyhound.slurm.nodelist import NodeListError, expand

COLUMNS = (
    "JobIDRaw",
    "JobID",
    "User",
    "Account",
    "Partition",
    "State",
    "ExitCode",
    "Submit",
    "Start",
    "End",
    "ElapsedRaw",
    "NNodes",
    "NodeList",
    "AllocTRES",
    "AdminComment",
    "Comment",
    "JobName",
)
TIME_FORMAT = {"SLURM_TIME_FORMAT": "%s"}
"""For sacct's environment: seconds since the epoch, whatever the time zone."""
_GPUS = re.compile(r"(?:^|,)gres/gpu(?::[^=,]+)?=(\d{1,9})")
_PLAIN_GPUS = re.compile(r"(?:^|,)gres/gpu=(\d{1,9})")
_NO_NODES = ("", "None assigned", "None", "(null)")
LATEST_S = 32_503_680_000  # the year 3000: what is later is no time


class AccountingError(ValueError):
    """A row of sacct's that can't be read; holds the row's beginning."""


class JobRun(NamedTuple):
    """One run of a job as accounting has it; times are seconds since the epoch, None while unknown."""

    raw_id: str
    job: jobid.JobId
    user: str
    account: str
    partition: str
    state: str
    exit_code: str
    submit_s: float | None
    start_s: float | None
    end_s: float | None
    elapsed_s: float
    node_list: str
    gpus: int
    name: str
    comment: str
    admin_comment: str

    @property
    def ended(self) -> bool:
        """Whether the run is over."""
        return self.end_s is not None

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of its nodes; none where the list can't be read."""
        return _nodes(self.node_list)


def new_delimiter() -> str:
    """A delimiter that nobody can have foreseen."""
    return f"\x1f{secrets.token_hex(6)}\x1f"


def arguments(delimiter: str) -> list[str]:
    """The arguments that choose form and columns; who and when is the caller's."""
    return ["--duplicates", "--allocations", "--noheader", "--parsable2", f"--delimiter={delimiter}", _format()]


def _format() -> str:
    return "--format=" + ",".join(COLUMNS)


def rows(lines: Iterable[str], delimiter: str) -> Iterator[list[str]]:
    """Cells by row, whatever newlines a comment or a job's name holds; a damaged row has another number of them."""
    width, held = len(COLUMNS), ""
    for line in lines:
        text = line.rstrip("\n")
        goes_on = held.count(delimiter) < width - 1 or delimiter not in text
        if held and not goes_on:
            yield held.split(delimiter)
            held = ""
        held = f"{held}\n{text}" if held else text
    if held:
        yield held.split(delimiter)


def _time(text: str) -> float | None:
    return float(text) if text.isdecimal() and len(text) < 12 and 0 < int(text) < LATEST_S else None


@functools.lru_cache(maxsize=128)
def _nodes(text: str) -> tuple[str, ...]:
    try:
        return () if text in _NO_NODES else tuple(expand(text))
    except NodeListError:
        return ()


def gpus(tres: str) -> int:
    """GPUs of an AllocTRES text; where only typed ones are counted (gres/gpu:h100=8) their sum."""
    plain = _PLAIN_GPUS.search(tres)
    return int(plain[1]) if plain else sum(int(count) for count in _GPUS.findall(tres))


def run_of(cells: list[str]) -> JobRun:
    """One row as values; AccountingError names what can't be read."""
    if len(cells) != len(COLUMNS):
        shown = " ".join(cells)[:120]
        raise AccountingError(f"sacct printed a row of {len(cells)} columns, not {len(COLUMNS)}: {shown!r}")
    row = dict(zip(COLUMNS, cells, strict=True))
    try:
        job = jobid.parse(row["JobID"])
        elapsed_s = float(int(row["ElapsedRaw"] or 0))
    except ValueError as error:
        raise AccountingError(f"sacct's row of {row['JobIDRaw'][:40]!r}: {error}") from None
    return JobRun(
        raw_id=row["JobIDRaw"],
        job=job,
        user=row["User"],
        account=row["Account"],
        partition=row["Partition"],
        state=(row["State"].split() or ["UNKNOWN"])[0],  # "CANCELLED by 1000"
        exit_code=row["ExitCode"],
        submit_s=_time(row["Submit"]),
        start_s=_time(row["Start"]),
        end_s=_time(row["End"]),
        elapsed_s=elapsed_s,
        node_list=row["NodeList"],
        gpus=gpus(row["AllocTRES"]),
        name=row["JobName"],
        comment=row["Comment"],
        admin_comment=row["AdminComment"],
    )


def runs(lines: Iterable[str], delimiter: str, tell: Callable[[str], None]) -> Iterator[JobRun]:
    """All runs in sacct's order; ``tell`` is given a line about each row that can't be read."""
    for cells in rows(lines, delimiter):
        try:
            yield run_of(cells)
        except AccountingError as error:
            tell(str(error))
