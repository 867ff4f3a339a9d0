"""Reads `squeue --json`, of Slurm 22.05 (v0.0.38) and of later releases, in which more and more fields are objects."""

import json
from typing import Any

from greyhound.slurm import jobid
from greyhound.slurm.client import QueuedJob, SlurmError

WAITING_OR_RUNNING = ("PENDING", "RUNNING", "SUSPENDED", "CONFIGURING", "COMPLETING", "RESIZING", "REQUEUED")


def parse(text: str) -> list[QueuedJob]:
    """The jobs that aren't over; SlurmError for what is no such answer."""
    try:
        rows = json.loads(text)["jobs"]
        return [job for job in map(_job, rows) if job.state in WAITING_OR_RUNNING]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SlurmError(f"squeue --json can't be read: {error!r}") from None


def number(value: Any) -> int | None:
    """A number, as itself or as {"set", "infinite", "number"}; None where it isn't set."""
    if isinstance(value, dict):
        return int(value["number"]) if value.get("set") and not value.get("infinite") else None
    return int(value) if value is not None else None


def _state(value: Any) -> str:
    """The base state; from 23.11 on a list, with flags such as COMPLETING behind it."""
    return str(value[0] if isinstance(value, list) else value).split()[0]


def _identity(row: dict[str, Any]) -> jobid.JobId:
    array, task, waiting = (
        number(row.get("array_job_id")),
        number(row.get("array_task_id")),
        row.get("array_task_string"),
    )
    if array and waiting:
        return jobid.parse(f"{array}_[{waiting}]")
    if array and task is not None:
        return jobid.JobId(array, array_task=task)
    het = number(row.get("het_job_id"))
    if het:
        return jobid.JobId(het, het_offset=number(row.get("het_job_offset")))
    return jobid.JobId(int(row["job_id"]))


def _job(row: dict[str, Any]) -> QueuedJob:
    return QueuedJob(_identity(row), _state(row["job_state"]), row["user_name"], row.get("nodes") or "", row["name"])
