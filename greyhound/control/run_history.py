"""The master's side of run-to-run comparison: this run against the user's earlier ones, and into their book.

The book is one bounded file; whatever is wrong with it is one line in the log, and the run goes uncompared.
"""

import logging
from dataclasses import asdict
from typing import Any

from greyhound.control.events import Emit, utc
from greyhound.control.job import Job
from greyhound.control.lines import runs_line
from greyhound.control.runs import Comparison, RunBook, RunRecord, compare

FIRST_ITERATION = 40
SETTLED_S = 5.0
CHANGED = 1e-3

log = logging.getLogger(__name__)


class RunHistory:
    """Compares a run as soon as its work and healthy time are known; keeps both for the runs to come."""

    def __init__(self, book: RunBook | None, job: Job, emit: Emit) -> None:
        """`book` is None where the record lies in no record directory."""
        self._book = book
        self._job = job
        self._emit = emit
        self._candidate, self._since_s = "", 0.0
        self._kept: RunRecord | None = None
        self._latest: RunRecord | None = None

    def step(self, now_s: float) -> None:
        """Once a round, at wall clock `now_s`."""
        fingerprint = self._job.fingerprint
        if fingerprint != self._candidate or not fingerprint:
            self._candidate, self._since_s = fingerprint, now_s
            return
        if abs(now_s - self._since_s) < SETTLED_S:  # at the begin and at the end the ranks are not all there
            return
        self._job.last_fingerprint = fingerprint
        known = self._job.iteration >= FIRST_ITERATION
        if self._book is None or not known or self._job.disturbance(now_s):
            return
        self._latest = self._record(now_s)
        # A run whose work changes counts once for each kind of work.
        if self._kept is None or self._kept.fingerprint != fingerprint:
            self._compare(self._latest, now_s)
            self._add(self._latest)

    def finish(self) -> None:
        """The healthy time may have become another since the run was compared: the last one counts."""
        last, kept = self._latest, self._kept
        if last is not None and kept is not None and abs(last.healthy_s / kept.healthy_s - 1) > CHANGED:
            self._add(last)

    def _record(self, now_s: float) -> RunRecord:
        name = self._job.name
        # An elastic job's ended ranks are still listed for a while.
        alive = [(node.name, sum(rank.alive for rank in node.samples.values())) for node in self._job.nodes.values()]
        return RunRecord(
            job=name.job,
            step=name.step,
            restart=name.restart,
            fingerprint=self._candidate,
            healthy_s=round(self._job.healthy_s, 9),
            ranks=sum(ranks for _, ranks in alive),
            nodes=tuple(sorted(node for node, ranks in alive if ranks)),
            time=utc(now_s),
        )

    def _compare(self, record: RunRecord, now_s: float) -> None:
        assert self._book is not None
        try:
            found = compare(record, self._book.read())
        except OSError as error:
            self._stop(error)
            return
        self._job.runs = data = _shown(found, record.fingerprint) if found else None
        if data and found and found.is_slower:
            self._emit("runs", now_s, data, iteration=self._job.iteration)
            self._job.notice(runs_line(data))

    def _add(self, record: RunRecord) -> None:
        self._kept = record
        if self._book is not None:
            try:
                self._book.add(record)
            except OSError as error:
                self._stop(error)

    def _stop(self, error: OSError) -> None:
        log.warning("this run isn't compared with earlier ones: %s", error.strerror or error)
        self._book = None


def _shown(found: Comparison, fingerprint: str) -> dict[str, Any]:
    return {
        **asdict(found),
        "healthy_s": round(found.healthy_s, 6),
        "earlier_s": round(found.earlier_s, 6),
        "slowdown": round(found.slowdown, 4),
        "new_nodes": list(found.new_nodes),
        "fingerprint": fingerprint,
    }
