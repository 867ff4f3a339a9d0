"""The client over pyslurm, whose API is https://pyslurm.github.io (25.11). For commands that people type.

A call into libslurm can't be bounded from here, other than by Slurm's own MessageTimeout, and ends its process where
slurm.conf is gone: our processes inside a job ask by commands (client.py), which can be killed.
"""

import re
from collections.abc import Callable
from typing import Any, TypeVar

from greyhound.slurm import jobid
from greyhound.slurm.client import MAX_MESSAGE, QueuedJob, SlurmError, check_node_name

UNKNOWN_JOB = 2017
"""ESLURM_INVALID_JOB_ID (slurm_errno.h)."""
OVER = (
    "COMPLETED",
    "CANCELLED",
    "FAILED",
    "TIMEOUT",
    "NODE_FAIL",
    "PREEMPTED",
    "BOOT_FAIL",
    "DEADLINE",
    "OUT_OF_MEMORY",
)
T = TypeVar("T")


def identity(job: Any) -> jobid.JobId:
    """A job as Slurm's commands print its id."""
    if job.array_id and job.array_task_id is not None:
        return jobid.JobId(job.array_id, array_task=job.array_task_id)
    if job.array_id and job.array_tasks_waiting:
        return jobid.JobId(job.array_id, pending_tasks=job.array_tasks_waiting)
    if job.heterogeneous_id:
        return jobid.JobId(job.heterogeneous_id, het_offset=job.heterogeneous_offset)
    return jobid.JobId(job.id)


class PyslurmClient:
    """Client over a pyslurm module that fits this Slurm (choose.py)."""

    def __init__(self, module: Any) -> None:
        """`module` is pyslurm, imported."""
        self._pyslurm = module

    def _ask(self, what: str, call: Callable[[], T]) -> T:
        try:
            return call()
        except self._pyslurm.PyslurmError as error:
            raise SlurmError(f"{what}: {error}") from error

    def _one(self, job: str) -> Any:
        """The job of that id; SlurmError if slurmctld doesn't know it."""
        wanted = jobid.parse(job)
        if wanted.array_task is None and wanted.het_offset is None:
            return self._ask(f"job {job}", lambda: self._pyslurm.Job.load(wanted.job))
        jobs = self._ask("the queue", self._pyslurm.Jobs.load)
        found = [one for one in jobs.values() if _fits(identity(one), wanted)]
        if not found:
            raise SlurmError(f"job {job}: Invalid job id specified")
        return found[0]

    def node_address(self, node: str) -> str:
        check_node_name(node)
        address = self._ask(f"node {node}", lambda: self._pyslurm.Node.load(node)).address
        if not address:
            raise SlurmError(f"pyslurm knows no NodeAddr of {node}")
        return str(address)

    def job_state(self, job: str) -> str:
        try:
            return str(self._one(job).state)
        except SlurmError as error:
            cause = error.__cause__
            if getattr(cause, "errno", None) == UNKNOWN_JOB or "Invalid job id" in str(error):
                return "UNKNOWN"
            raise

    def job_number(self, job: str) -> int:
        return int(self._one(job).id)

    def queue(self) -> list[QueuedJob]:
        jobs = self._ask("the queue", self._pyslurm.Jobs.load)
        found = [
            QueuedJob(identity(j), j.state, j.user_name, j.allocated_nodes or "", j.name or "") for j in jobs.values()
        ]
        return [job for job in found if job.state not in OVER]

    def notify(self, job: str, message: str) -> None:
        number = jobid.parse(job).job
        line = re.sub(r"[\x00-\x1f\x7f]+", " ", message)[:MAX_MESSAGE]
        self._ask(f"job {job}", lambda: self._pyslurm.Job(number).notify(line))

    def comment(self, job: str) -> str:
        number = jobid.parse(job).job
        return self._ask(f"job {job}", lambda: self._pyslurm.Job.load(number)).comment or ""

    def set_comment(self, job: str, text: str) -> None:
        number = jobid.parse(job).job
        changes = self._pyslurm.JobSubmitDescription(comment=text)
        self._ask(f"job {job}", lambda: self._pyslurm.Job(number).modify(changes))


def _fits(one: jobid.JobId, wanted: jobid.JobId) -> bool:
    return (one.job, one.array_task, one.het_offset) == (wanted.job, wanted.array_task, wanted.het_offset)
