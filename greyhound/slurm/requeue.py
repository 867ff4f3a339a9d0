"""S4's part that talks to Slurm: a running batch job goes back to the queue, without the nodes that were slow.

Plain `scontrol requeue`, then `scontrol update ... ExcNodeList=` while the job is COMPLETING or PENDING: Slurm refuses
the list while it is RUNNING. If something dies in between, the job restarts on any node and isn't lost or held.
Carried out by the batch script's side (sbatch_templates), since requeue ends all steps; TERM must be ignored by then.
"""

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from greyhound.slurm import nodelist
from greyhound.slurm.client import SlurmError

VERSION = 1
EXPIRES_S = 24 * 3600.0
UPDATE_S, UPDATE_POLL_S = 60.0, 0.5
USABLE = ("idle", "mix", "alloc", "comp", "plnd")
_MOST_TEXT = 400
_LATEST_S = 1e12


class RequeueError(ValueError):
    """The request, the site or the limits don't allow it; the job goes on. The text says why and what would do."""


@dataclass(frozen=True)
class Request:
    """What the watch asks for, written by it as a file inside the job: nodes to leave out, since when, and why."""

    job: str
    nodes: Mapping[str, float]
    reason: str

    def to_text(self) -> str:
        """The request as a line of JSON."""
        return json.dumps({"v": VERSION, "job": self.job, "nodes": dict(self.nodes), "reason": self.reason}) + "\n"


def parse(text: str) -> Request:
    """`{"v":1,"job":"123","nodes":{"n2":UNIX_SECONDS},"reason":...}`. Raises RequeueError, with the offending field."""
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RequeueError(f"not a request: {error}") from None
    if not isinstance(raw, dict) or raw.get("v") != VERSION:
        raise RequeueError("not a request of this release")
    job, nodes, reason = raw.get("job"), raw.get("nodes"), raw.get("reason", "")
    if not isinstance(job, str) or not re.fullmatch(r"[0-9]{1,10}", job, re.ASCII):
        raise RequeueError(f"job {job!r:.40}: a job's number is needed")
    if not isinstance(nodes, dict) or not nodes:
        raise RequeueError(f"nodes {nodes!r:.80}: names with the time since when they are slow")
    return Request(job, {_node(name): _seconds(name, since) for name, since in nodes.items()}, str(reason)[:_MOST_TEXT])


def _node(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}", name, re.ASCII):
        raise RequeueError(f"node {name!r:.80}: one name like n1")
    return name


def _seconds(name: str, since: Any) -> float:
    if isinstance(since, bool) or not isinstance(since, int | float) or not 0 <= since <= _LATEST_S:
        raise RequeueError(f"node {name}: {since!r:.40} isn't a time in seconds since the epoch")
    return float(since)


@dataclass(frozen=True)
class JobFacts:
    """What Slurm says of the job: nodes that it excludes, and that it requires, how many it needs, and its restarts."""

    excluded: str
    nodes: int
    partition: str
    restarts: int
    batch: bool
    state: str
    requeueable: bool
    required: str = ""


_FIELDS = {
    "ExcNodeList": r"ReqNodeList=\S* ExcNodeList=(\S*)",
    "ReqNodeList": r" ReqNodeList=(\S*) ExcNodeList=",
    "NumNodes": r"NumNodes=(\d+)(?:-\d+)? NumCPUs=",
    "Partition": r"Partition=(\S+) AllocNode:Sid=",
    "JobState": r"JobState=(\S+) Reason=",
    "Requeue": r"Requeue=(\d) Restarts=\d+ BatchFlag=",
    "Restarts": r"Requeue=\d Restarts=(\d+) BatchFlag=",
    "BatchFlag": r" BatchFlag=(\d)",
}
"""Each with its neighbours: a job's name, which is free text and comes first, holds these words at most by intent."""


def parse_job(text: str) -> JobFacts:
    """From `scontrol -o show job`. Raises RequeueError where a field is missing."""
    found = {name: re.search(pattern, text) for name, pattern in _FIELDS.items()}
    missing = [name for name, match in found.items() if match is None]
    if missing:
        raise RequeueError(f"scontrol names no {', '.join(missing)}: {text[:200]!r}")
    value = {name: match[1] for name, match in found.items() if match}
    return JobFacts(
        excluded=value["ExcNodeList"].replace("(null)", ""),
        required=value["ReqNodeList"].replace("(null)", ""),
        nodes=int(value["NumNodes"]),
        partition=value["Partition"],
        restarts=int(value["Restarts"]),
        batch=value["BatchFlag"] != "0",
        state=value["JobState"],
        requeueable=value["Requeue"] == "1",
    )


def usable_nodes(text: str) -> set[str]:
    """Nodes of `sinfo -h -N -o "%N %t"` that can run jobs now or later; states with a mark (down*, drain) can't."""
    rows = (line.split() for line in text.splitlines())
    return {row[0] for row in rows if len(row) == 2 and row[1].rstrip("+") in USABLE}


@dataclass(frozen=True)
class Limits:
    """`restarts` of one job at most, and `share` of its partition's usable nodes excluded (one node always may be)."""

    restarts: int = 3
    share: float = 0.1


@dataclass(frozen=True)
class Plan:
    """The exclude list to set, and what of it is ours (`excluded`: node -> since when)."""

    node_list: str
    excluded: dict[str, float] = field(default_factory=dict)


def plan(
    request: Request, facts: JobFacts, usable: set[str], earlier: Mapping[str, float], now_s: float, limits: Limits
) -> Plan:
    """The merged exclude list: the user's own, ours of the last day, and the new ones.

    `earlier` are our own exclusions of the runs before (node -> since when); those older than EXPIRES_S, which no new
    verdict has confirmed, are taken out again. Raises RequeueError where the job can't or mustn't be requeued.
    """
    if not facts.batch:
        raise RequeueError("only batch jobs can be requeued; this one was not started by sbatch")
    if not facts.requeueable:
        raise RequeueError("this job may not be requeued (sbatch --no-requeue, or JobRequeue=0 of the site)")
    if facts.restarts >= limits.restarts:
        raise RequeueError(f"restarted {facts.restarts} times already; the limit is {limits.restarts}")
    demanded = set(nodelist.expand(facts.required)) & set(request.nodes) if facts.required else set()
    if demanded:
        raise RequeueError(f"the job asks for {nodelist.compress(sorted(demanded))} itself (--nodelist)")
    users_own = set(nodelist.expand(facts.excluded)) - set(earlier) if facts.excluded else set()
    ours = {node: since for node, since in earlier.items() if now_s - since < EXPIRES_S} | dict(request.nodes)
    _check_enough(facts, usable, users_own, set(ours), limits)
    return Plan(nodelist.compress(sorted(users_own | set(ours))), ours)


def _check_enough(facts: JobFacts, usable: set[str], users_own: set[str], ours: set[str], limits: Limits) -> None:
    most = max(1, int(limits.share * len(usable)))
    counted = len(ours & usable)
    if counted > most:
        raise RequeueError(
            f"{counted} of {len(usable)} usable nodes of partition {facts.partition} would be excluded; {most} at most"
        )
    left = len(usable - users_own - ours)
    if left < facts.nodes:
        raise RequeueError(
            f"the job needs {facts.nodes} nodes and {left} of partition {facts.partition} would be left: "
            "no replacement can start"
        )


class Asking(Protocol):
    """What is needed of greyhound.slurm.client.CommandClient."""

    def ask(self, program: str, *arguments: str) -> str: ...


def gather(client: Asking, job: str) -> tuple[JobFacts, set[str]]:
    """(the job, the usable nodes of its partition). SlurmError or RequeueError."""
    facts = parse_job(client.ask("scontrol", "-o", "show", "job", job))
    return facts, usable_nodes(client.ask("sinfo", "-h", "-N", "-p", facts.partition, "-o", "%N %t"))


def carry_out(
    client: Asking,
    job: str,
    chosen: Plan,
    tell: Callable[[str], None],
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """Requeue, then set the list as soon as Slurm takes it; whether it did. SlurmError if the requeue was refused.

    The caller ignores TERM: requeue sends it to the whole batch step at once, and KILL some seconds later.
    """
    client.ask("scontrol", "requeue", job)
    deadline_s, refused = clock() + UPDATE_S, ""
    while clock() < deadline_s:
        try:
            client.ask("scontrol", "update", f"jobid={job}", f"ExcNodeList={chosen.node_list}")
            facts = parse_job(client.ask("scontrol", "-o", "show", "job", job))
            if same_nodes(facts.excluded, chosen.node_list):
                return True
        except (SlurmError, RequeueError, nodelist.NodeListError) as error:
            refused = str(error)
        else:
            refused = f"the list is {facts.excluded or 'empty'!r}"
        sleep(UPDATE_POLL_S)
    tell(f"requeued, but the exclude list was not taken, so the job may get the same nodes again: {refused}")
    return False


def same_nodes(one: str, other: str) -> bool:
    """Whether two node lists name the same nodes."""

    def names(text: str) -> Sequence[str]:
        return sorted(nodelist.expand(text)) if text else []

    return names(one) == names(other)
