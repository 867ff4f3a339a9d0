"""Reads and writes the AdminComment of jobs that are over, through accounting (operators only)."""

from collections.abc import Mapping

from greyhound.slurm.client import CommandClient

TIMEOUT_S = 30.0


class AdminComments:
    """Of a job's newest run: sacctmgr changes no other."""

    def __init__(self, environment: Mapping[str, str] | None = None, timeout_s: float = TIMEOUT_S) -> None:
        self._client = CommandClient(timeout_s=timeout_s, environment=environment)

    def read(self, job: int) -> str:
        """As accounting has it now; SlurmError."""
        arguments = ("--allocations", "--noheader", "--parsable2", "--format=AdminComment", f"--jobs={job}")
        return self._client.ask("sacct", *arguments).strip()

    def write(self, job: int, text: str) -> None:
        """Replace it; SlurmError where slurmdbd refuses (no operator) or doesn't answer."""
        self._client.ask("sacctmgr", "-i", "modify", "job", "where", f"JobID={job}", "set", f"AdminComment={text}")
