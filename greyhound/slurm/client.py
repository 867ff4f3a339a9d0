"""What Greyhound asks of Slurm, as an interface, and its implementation over the commands; choose.py knows another."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from greyhound.slurm import jobid

TIMEOUT_S = 10.0
SEARCH = os.pathsep.join(["/usr/bin", "/usr/local/bin", "/opt/slurm/bin", "/usr/sbin", "/bin"])
MAX_MESSAGE = 400
_NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}", re.ASCII)
_SEPARATOR = "\x1f"
_NO_TEXT = ("(null)", "N/A")
_QUEUE_COLUMNS = ("%i", "%T", "%u", "%N", "%j")  # the user's own text last


class SlurmError(Exception):
    """Slurm refused, did not answer in time, or is not installed; the text says which."""


@dataclass(frozen=True)
class QueuedJob:
    """One row of squeue."""

    job: jobid.JobId
    state: str
    user: str
    node_list: str
    name: str


class Client(Protocol):
    """Everything that Greyhound needs from Slurm."""

    def node_address(self, node: str) -> str:
        """NodeAddr of a node: where the other nodes reach it."""
        ...

    def job_state(self, job: str) -> str:
        """RUNNING, PENDING, ...; UNKNOWN once Slurm has forgotten the job."""
        ...

    def job_number(self, job: str) -> int:
        """The number under which Slurm runs an array task or a component of a heterogeneous job."""
        ...

    def queue(self) -> list[QueuedJob]:
        """All jobs that are pending or running."""
        ...

    def notify(self, job: str, message: str) -> None:
        """Show one line in the job's own output."""
        ...

    def comment(self, job: str) -> str:
        """The comment of a job that slurmctld still knows; empty where it has none."""
        ...

    def set_comment(self, job: str, text: str) -> None:
        """Replace the comment of a job that hasn't ended."""
        ...


class CommandClient:
    """Client over scontrol and squeue, each found once, by absolute path, with a bounded time to answer."""

    def __init__(
        self,
        folder: Path | None = None,
        timeout_s: float = TIMEOUT_S,
        environment: Mapping[str, str] | None = None,
        preexec: Callable[[], None] | None = None,
    ) -> None:
        """`preexec` runs in each command's process before it begins."""
        self._preexec = preexec
        self._folder = folder
        self._timeout_s = timeout_s
        self._environment = dict(os.environ if environment is None else environment)

    def node_address(self, node: str) -> str:
        check_node_name(node)
        answer = self._run("scontrol", "-o", "show", "node", node)
        # The first one: Reason, an operator's free text, comes behind it.
        match = re.search(r" NodeAddr=(\S+)", answer)
        if match is None:
            raise SlurmError(f"scontrol show node {node} names no NodeAddr: {answer[:200]!r}")
        return match[1]

    def job_state(self, job: str) -> str:
        identity = jobid.parse(job)
        try:
            answer = self._run("squeue", "-h", "-t", "all", "-j", str(identity), "-o", "%T")
        except SlurmError as error:
            if "Invalid job id" in str(error):
                return "UNKNOWN"
            raise
        return (answer.split() or ["UNKNOWN"])[0]

    def job_number(self, job: str) -> int:
        answer = self._run("scontrol", "-o", "show", "job", str(jobid.parse(job)))
        match = re.match(r"JobId=(\d+)", answer)
        if match is None:
            raise SlurmError(f"scontrol show job {job} names no JobId: {answer[:200]!r}")
        return int(match[1])

    def queue(self) -> list[QueuedJob]:
        """By `--json`, which no name can break; by columns where this squeue has no such option or no plugin for it."""
        from greyhound.slurm import queue_json

        try:
            return queue_json.parse(self._run("squeue", "--json"))
        except SlurmError as refused:
            try:
                return parse_queue(self._run("squeue", "-h", "-o", _SEPARATOR.join(_QUEUE_COLUMNS)))
            except SlurmError as error:
                raise error from refused

    def notify(self, job: str, message: str) -> None:
        line = re.sub(r"[\x00-\x1f\x7f]+", " ", message)[:MAX_MESSAGE]
        self._run("scontrol", "notify", str(jobid.parse(job).job), line)

    def comment(self, job: str) -> str:
        answer = self._run("squeue", "-h", "-t", "all", "-j", str(jobid.parse(job).job), "-o", "%k")
        text = answer.removesuffix("\n")
        return "" if text in _NO_TEXT else text

    def set_comment(self, job: str, text: str) -> None:
        self._run("scontrol", "update", f"JobId={jobid.parse(job).job}", f"Comment={text}")

    def ask(self, program: str, *arguments: str) -> str:
        """What one of Slurm's commands prints; SlurmError with its own words where it fails."""
        return self._run(program, *arguments)

    def _find(self, program: str) -> str:
        return find_program(program, self._environment, self._folder)

    def _run(self, program: str, *arguments: str) -> str:
        return run_command([self._find(program), *arguments], self._environment, self._timeout_s, self._preexec)


def check_node_name(node: str) -> None:
    """SlurmError for what isn't one node's name."""
    if not _NODE_NAME.fullmatch(node):
        raise SlurmError(f"node name {node!r}: give one name like n1")


def run_command(
    command: list[str],
    environment: Mapping[str, str],
    timeout_s: float = TIMEOUT_S,
    preexec: Callable[[], None] | None = None,
) -> str:
    """A command's standard output; SlurmError if it can't be run, fails, or takes longer than `timeout_s`."""
    program = Path(command[0]).name
    try:
        answer = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
            env=dict(environment),
            preexec_fn=preexec,
        )
    except subprocess.TimeoutExpired:
        raise SlurmError(f"{program} did not answer within {timeout_s:g} s; is slurmctld up?") from None
    except OSError as error:
        raise SlurmError(f"cannot run {command[0]}: {error.strerror}") from None
    if answer.returncode != 0:
        said = answer.stderr.strip() or answer.stdout.strip()
        raise SlurmError(f"{program} {' '.join(command[1:])[:120]}: {said}")
    return answer.stdout


def find_program(program: str, environment: Mapping[str, str], folder: Path | None = None) -> str:
    """Absolute path of one of Slurm's commands, in `folder` alone where it is given; SlurmError if there is none."""
    folders = [str(folder)] if folder else [environment.get("PATH", ""), SEARCH]
    path = shutil.which(program, path=os.pathsep.join(folders))
    if path is None:
        raise SlurmError(f"no {program} in {', '.join(folders)}: is slurm-client installed on this node?")
    return str(Path(path).absolute())


def parse_queue(text: str) -> list[QueuedJob]:
    """Rows of `squeue -o` with our columns; SlurmError for a row of another width (a newline in a job's name)."""
    jobs = []
    for row in text.split("\n"):
        cells = row.split(_SEPARATOR, len(_QUEUE_COLUMNS) - 1)
        if row and len(cells) != len(_QUEUE_COLUMNS):
            raise SlurmError(f"squeue printed a row of {len(cells)} columns: {row[:200]!r}")
        if row:
            jobs.append(QueuedJob(jobid.parse(cells[0]), *cells[1:]))
    return jobs
