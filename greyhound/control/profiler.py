"""The master's side of localisation: when the ranks are profiled, what their profiles are compared with, what is said.

A healthy profile is taken as soon as the healthy time is known, again every ten minutes; both compare ranks with each
other, and the job with earlier runs of the same work, so that what is slow from the start is found, too. A fail-slow is
profiled at once and, while nobody can be named, a few times more. The owner may ask at any time (`greyhound profile`).
"""

import logging
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from greyhound.control import explain, job_view
from greyhound.control.background import Background
from greyhound.control.events import Emit
from greyhound.control.job import Job
from greyhound.control.messages import Data
from greyhound.control.profile_message import ProfileDone, ProfileOrder
from greyhound.control.profile_run import ANSWER_S, BUDGET, LEAD_S, MOST_S, ProfileRun, calls_sent, one_in, window_s
from greyhound.control.states import State
from greyhound.control.verdict_data import component, same_suspects, verdict_data, verdict_text
from greyhound.localize.cause_evidence import Evidence
from greyhound.localize.model import RankProfile, Verdict
from greyhound.localize.start import judge_start

PERIOD_S = 600.0
RETRY_S = 60.0
FIRST_LATEST_S = 240.0  # after tracking began: slow from the start is named within five minutes
CALM_AFTER_S = 30.0  # a profile is healthy if no fail-slow is reported within so long
EPISODE_S = 55.0  # of the minute that a verdict may take
MOST_TRIES = 3

Judge = Callable[[Sequence[RankProfile], Sequence[RankProfile] | None, float | None], Verdict]
"""(profiles now, healthy profiles or None, seconds lost an iteration or None) -> verdict."""

log = logging.getLogger(__name__)


class ProfileError(RuntimeError):
    """No profile can be taken now; the message says why."""


@dataclass
class _Healthy:
    """A profile of a job that was calm until now; `work` and `ranks` tell whether it still is of the same job."""

    profiles: list[RankProfile]
    evidence: dict[int, Evidence]
    work: str
    ranks: frozenset[str]
    at_s: float


@dataclass
class _Question:
    """A fail-slow that is to be explained."""

    episode: str
    since_s: float
    tries: int = 0
    answered: bool = False


class Profiler:
    """`step` once a round; what the analyzers must be told is in `outgoing` until it was sent.

    Times are `mono_s`, of a clock that doesn't jump; wall clock only where nodes or people are told.
    """

    def __init__(self, job: Job, emit: Emit, judge: Judge) -> None:
        """`judge` is called by a thread."""
        self._job = job
        self._emit = emit
        self._judge = judge
        self._run: ProfileRun | None = None
        self._judging: Background[Verdict] | None = None
        self._asked: list[str] = []
        self._question: _Question | None = None
        self._healthy: _Healthy | None = None
        self._candidate: _Healthy | None = None
        self._tracked_since_s: float | None = None
        self._due_s = 0.0
        self._compared = ""  # the work of which a profile was compared with earlier runs
        self._said_of_all = ""  # the work of which it was said that all are slow alike
        self._wanted = False
        self.latest: tuple[int, list[RankProfile]] = (0, [])
        self.outgoing: list[Data] = []

    @property
    def busy(self) -> bool:
        """Whether a profile is under way."""
        return self._run is not None

    def step(self, now_s: float, mono_s: float, hindered: str = "") -> None:
        """Once a round; `hindered` says why none may begin now."""
        self._follow_job(mono_s)
        self._follow_run(now_s, mono_s)
        if self._run is None and not hindered and not job_view.why_unseen(self._job):
            self._begin_what_is_due(now_s, mono_s)

    def ask(self, run: str) -> str:
        """The owner wants one: a line about it, or ProfileError. Its events bear this `run`."""
        why = job_view.why_unseen(self._job)
        if why:
            raise ProfileError(f"not now: {why}")
        if run not in self._asked:
            self._asked.append(run)
        iteration_s = self._job.iteration_s
        return f"profiling the ranks for {window_s(iteration_s):.0f} s"

    def want(self) -> None:
        """Profiles for mitigation: they come into `latest`, and nothing is said of them."""
        self._wanted = True

    def take(self, node: int, done: ProfileDone) -> None:
        """A node's profiles."""
        if self._run is not None and self._judging is None:
            self._run.take(node, done)

    def new_bus(self) -> None:
        """The analyzers find another Redis, which doesn't know of the order."""
        if self._run is not None and self._judging is None:
            self.outgoing = [self._run.order]

    def finish(self, now_s: float) -> None:
        """The job ends: who asked is told."""
        runs = [self._run] if self._run is not None and self._run.order.reason == "owner" else []
        for run in [*runs, *(self._new_run(asked, "owner", now_s, 0.0) for asked in self._asked)]:
            self._say(run, Verdict(abstained="the job ended before its ranks were profiled"), now_s)
        self._asked, self._run = [], None

    # -- when -------------------------------------------------------------------------------------------

    def _follow_job(self, mono_s: float) -> None:
        tracking = self._job.machine.state in (State.TRACKING, State.SUSPECT)
        if not tracking:
            self._tracked_since_s = None
        elif self._tracked_since_s is None:
            self._tracked_since_s = mono_s
        current = self._job.merger.current
        if current is not None:
            self._candidate = None
            if self._question is None or self._question.episode != current.id:
                self._question = _Question(current.id, mono_s)
        elif self._question is not None and not self.busy:
            self._question = None
        if self._candidate is not None and mono_s - self._candidate.at_s >= CALM_AFTER_S:
            self._healthy, self._candidate = self._candidate, None

    def _begin_what_is_due(self, now_s: float, mono_s: float) -> None:
        if self._asked:
            self._begin(self._asked.pop(0), "owner", now_s, mono_s)
        elif self._question is not None and not self._question.answered:
            self._question.tries += 1
            self._begin(secrets.token_hex(8), "fail-slow", now_s, mono_s, self._question.tries)
        elif self._wanted:
            self._wanted = False
            self._begin(secrets.token_hex(8), "mitigation", now_s, mono_s)
        elif self._is_routine_due(now_s, mono_s):
            self._due_s = mono_s + PERIOD_S
            self._begin(secrets.token_hex(8), "routine", now_s, mono_s)

    def _is_routine_due(self, now_s: float, mono_s: float) -> bool:
        if self._question is not None or self._tracked_since_s is None:
            return False
        late = self._healthy is None and self._candidate is None
        if not self._job.disturbance(now_s) and job_view.all_healthy(self._job):
            changed = self._healthy is not None and not self._is_of_this_job(self._healthy)
            changed |= job_view.earlier_s(self._job) is not None and self._compared != self._job.fingerprint
            return mono_s >= self._due_s or (changed and mono_s >= self._due_s - PERIOD_S + RETRY_S)
        return late and mono_s - self._tracked_since_s >= FIRST_LATEST_S and mono_s >= self._due_s

    def _begin(self, run: str, reason: str, now_s: float, mono_s: float, tries: int = 1) -> None:
        self._run = self._new_run(run, reason, now_s, mono_s, tries)
        self.outgoing.append(self._run.order)

    def _new_run(self, run: str, reason: str, now_s: float, mono_s: float, tries: int = 1) -> ProfileRun:
        job, usual_s = self._job, window_s(self._job.iteration_s)
        order = ProfileOrder(
            run=run,
            reason=reason,
            start_ns=int((now_s + LEAD_S) * 1e9),
            seconds=min(usual_s * 2 ** (tries - 1), max(MOST_S, usual_s)),
            budget=BUDGET,
            one_in=one_in(job_view.calls_per_s(job)),
            calls=calls_sent(len(job_view.living(job))),
        )
        episode = self._question.episode if self._question else None
        return ProfileRun(order, job.nodes_with_ranks, mono_s, episode)

    # -- what comes of it ---------------------------------------------------------------------------------

    def _follow_run(self, now_s: float, mono_s: float) -> None:
        run = self._run
        if run is None:
            return
        if self._judging is None and run.is_over(mono_s):
            self._end_window(run, now_s, mono_s)
        if self._judging is not None and self._judging.is_over:
            failed = Verdict(abstained="the profiles can't be compared; the log says why")
            self._conclude(run, self._judging.result or failed, now_s, mono_s)

    def _end_window(self, run: ProfileRun, now_s: float, mono_s: float) -> None:
        profiles, episode = run.profiles, run.episode
        self._emit("profile", now_s, run.result(), episode, self._job.iteration)
        self.latest = (self.latest[0] + 1, profiles)
        if run.order.reason == "mitigation":
            self._run = None
            return
        healthy = self._healthy if self._healthy and self._is_of_this_job(self._healthy) else None
        evidence = explain.read(run.evidence)
        lost_s = job_view.lost_s_per_iteration(self._job, episode)
        if not profiles:
            why = run.problems[0] if run.problems else "no rank answered"
            self._conclude(run, Verdict(abstained=why), now_s, mono_s)
            return
        earlier_s = job_view.earlier_s(self._job) if run.order.reason == "routine" else None
        if earlier_s is not None:
            self._compared = self._job.fingerprint
        self._judging = Background("gh-judge", lambda: self._verdict(profiles, evidence, healthy, lost_s, earlier_s))
        if episode is None and not self._job.disturbance(now_s):
            keys = frozenset(job_view.living(self._job))
            self._candidate = _Healthy(profiles, evidence, self._job.fingerprint, keys, mono_s)

    def _verdict(
        self,
        profiles: list[RankProfile],
        evidence: dict[int, Evidence],
        healthy: _Healthy | None,
        lost_s: float | None,
        earlier_s: float | None,
    ) -> Verdict:
        """In a thread: many ranks take a while."""
        verdict = self._judge(profiles, healthy.profiles if healthy else None, lost_s)
        if earlier_s is not None:
            verdict = judge_start(profiles, earlier_s, verdict=verdict)
        return explain.explained(verdict, profiles, evidence, healthy.evidence if healthy else {})

    def _is_of_this_job(self, healthy: _Healthy) -> bool:
        now = self._job.fingerprint
        return healthy.ranks == frozenset(job_view.living(self._job)) and healthy.work == (now or healthy.work)

    def _conclude(self, run: ProfileRun, verdict: Verdict, now_s: float, mono_s: float) -> None:
        self._run, self._judging = None, None
        reason, episode = run.order.reason, run.episode
        if not run.profiles:
            self._due_s = min(self._due_s, mono_s + RETRY_S)
        verdict = job_view.with_blind_spots(verdict, self._job, run.silent)
        question = self._question if self._question and self._question.episode == episode else None
        if question is not None and not verdict.suspects and self._may_try_again(question, mono_s):
            if reason == "owner":
                self._say(run, verdict, now_s)
            return
        if question is not None and question.answered and reason != "owner":
            return
        if question is not None:
            question.answered = True
        self._say(run, verdict, now_s)

    @staticmethod
    def _may_try_again(question: _Question, mono_s: float) -> bool:
        left_s = EPISODE_S - (mono_s - question.since_s)
        return not question.answered and question.tries < MOST_TRIES and left_s > LEAD_S + MOST_S + ANSWER_S / 2

    def _say(self, run: ProfileRun, verdict: Verdict, now_s: float) -> None:
        """Write the event, if it is news."""
        reason, episode = run.order.reason, run.episode
        names = {index: node.name for index, node in self._job.nodes.items()}
        data: dict[str, Any] = {"run": run.order.run, "reason": reason, **verdict_data(verdict, names)}
        for row, suspect in zip(data["suspects"], verdict.suspects, strict=False):
            named = explain.identity(run.evidence, suspect.nodes[0], suspect.bus) if suspect.nodes else None
            row["identity"] = named
        if reason == "routine" and not self._is_news(data):
            return
        where = component(data["suspects"][0]) if data["suspects"] else None
        self._emit("verdict", now_s, data, episode, self._job.iteration, where)
        text = verdict_text(data, episode)
        log.info("%s", text)
        self._job.verdict = {"episode": episode, "iteration": self._job.iteration, "text": text, **data}

    def _is_news(self, data: dict[str, Any]) -> bool:
        """Of a routine profile: whether it names somebody else than the last one did; that all are slow alike, once."""
        last, suspects = self._job.verdict, data["suspects"]
        if same_suspects(last, data) or (last is None and not suspects):
            return False
        if not suspects or any(row["nodes"] for row in suspects):
            return True
        before, self._said_of_all = self._said_of_all, self._job.fingerprint
        return not before or before != self._said_of_all
