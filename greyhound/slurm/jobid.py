"""One parser for every form in which Slurm prints a job, array task, component or step."""

import re
from dataclasses import dataclass, field

MAX_JOB_ID = 0x03FFFFFF  # slurm.conf(5), MaxJobId
MAX_ARRAY_INDEX = 4_000_001  # slurm.conf(5), MaxArraySize
MAX_STEP_ID = 0xFFFFFFEF  # below the special steps (slurm.h, SLURM_PENDING_STEP and so on)
SPECIAL_STEPS = ("batch", "extern", "interactive", "pending", "TBD")

_FORM = re.compile(
    r"(?P<job>\d{1,10})"
    r"(?:_(?:(?P<task>\d{1,10})|\[(?P<pending>[\d,:%\-]{1,4096})(?P<cut>\.\.\.)?\]))?"
    r"(?:\+(?P<offset>\d{1,6}))?"
    r"(?:\.(?P<step>\d{1,10}|batch|extern|interactive|pending|TBD)(?:\+(?P<step_offset>\d{1,6}))?)?",
    re.ASCII,
)
_INDEX = re.compile(r"(\d{1,10})(?:-(\d{1,10})(?::(\d{1,10}))?)?", re.ASCII)


class JobIdError(ValueError):
    """Text that is no job id; holds the text and the forms that are."""


@dataclass(frozen=True)
class JobId:
    """A job or part of one. `str()` gives Slurm's own form back."""

    job: int
    array_task: int | None = None
    pending_tasks: str | None = None
    """Inside of `[9201-10000%500]`: tasks of an array that have not started."""
    het_offset: int | None = None
    step: int | str | None = None
    """Number, or one of SPECIAL_STEPS."""
    step_het_offset: int | None = None
    truncated: bool = field(default=False, compare=False)
    """The list of pending tasks was cut off by squeue (`...`)."""

    def __str__(self) -> str:
        text = str(self.job)
        if self.array_task is not None:
            text += f"_{self.array_task}"
        if self.pending_tasks is not None:
            text += f"_[{self.pending_tasks}{'...' if self.truncated else ''}]"
        if self.het_offset is not None:
            text += f"+{self.het_offset}"
        if self.step is not None:
            text += f".{self.step}"
        if self.step_het_offset is not None:
            text += f"+{self.step_het_offset}"
        return text


def parse(text: str) -> JobId:
    """Read `123`, `123_4`, `123_[9201-10000%500]`, `123+0`, `123.batch`, `123_4.0`, `123+1.0`; JobIdError otherwise."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise _error(text)
    job, task, offset = int(match["job"]), _number(match["task"]), _number(match["offset"])
    step: int | str | None = match["step"]
    if step is not None and step not in SPECIAL_STEPS:
        step = int(step)
    in_range = 0 < job <= MAX_JOB_ID and (task or 0) < MAX_ARRAY_INDEX
    if not in_range or (isinstance(step, int) and step > MAX_STEP_ID):
        raise _error(text)
    array = match["task"] is not None or match["pending"] is not None
    if (array and offset is not None) or (match["pending"] is not None and step is not None):
        raise _error(text)  # Slurm has no heterogeneous arrays, and a pending task has no step
    # squeue may cut its list anywhere: what hangs over is dropped.
    pending = match["pending"].rstrip(",-:%") if match["cut"] else match["pending"]
    if pending is not None and not _pending_is_sound(pending):
        raise _error(text)
    return JobId(job, task, pending, offset, step, _number(match["step_offset"]), bool(match["cut"]))


def _pending_is_sound(text: str) -> bool:
    tasks, percent, limit = text.partition("%")
    pieces = [_INDEX.fullmatch(piece) for piece in tasks.split(",")]
    ranges = [piece and int(piece[2] or piece[1]) >= int(piece[1]) for piece in pieces]
    return all(ranges) and (not percent or (limit.isdecimal() and int(limit) > 0))


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def _error(text: str) -> JobIdError:
    shown = text if len(text) <= 60 else text[:57] + "..."
    return JobIdError(
        f"job id {shown!r}: give 123, 123_4 (array task), 123+1 (component), each with .STEP (123.0, 123.batch)"
    )
