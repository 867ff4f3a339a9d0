"""One profile as the master sees it: which nodes were asked, which ranks answered. Pure."""

from collections.abc import Mapping
from statistics import median
from typing import Any

from greyhound.control.profile_message import MOST_CALLS, ProfileDone, ProfileOrder
from greyhound.localize.model import RankProfile

BUDGET = 1300  # brackets a second and rank: 3 us each, 0.4 % of the host's time
LEAD_S = 1.5  # the nodes look for messages once a second
ANSWER_S = 10.0
ITERATIONS = 5
LEAST_S, MOST_S = 3.0, 20.0
SLOW_ITERATIONS, SLOW_MOST_S = 3.2, 45.0  # where an iteration takes longer than MOST_S / ITERATIONS
CALLS_IN_ALL, LEAST_CALLS = 1 << 16, 32  # that all ranks send together; Redis holds some of these
MOST_ONE_IN = 0xFFFF


def window_s(iteration_s: float) -> float:
    """Seconds that hold a few iterations of so many seconds."""
    usual_s = min(max(LEAST_S, ITERATIONS * iteration_s), MOST_S)
    return max(usual_s, min(SLOW_ITERATIONS * iteration_s, SLOW_MOST_S))


def one_in(calls_per_s: float) -> int:
    """Which share of the calls keeps the busiest rank within the budget."""
    return min(max(1, -int(-calls_per_s // BUDGET)), MOST_ONE_IN)


def calls_sent(ranks: int) -> int:
    """How many timed calls each of so many ranks may send."""
    return min(MOST_CALLS, max(LEAST_CALLS, CALLS_IN_ALL // max(1, ranks)))


class ProfileRun:
    """From the order to the last node's answer, or to the end of patience."""

    def __init__(self, order: ProfileOrder, nodes: Mapping[int, str], now_s: float, episode: str | None) -> None:
        """`nodes` that are asked, with their names; `now_s` of any clock that doesn't jump; `episode` it is about."""
        self.order = order
        self.episode = episode
        self.evidence: dict[int, dict[str, Any]] = {}
        self._nodes = dict(nodes)
        self._profiles: dict[int, list[RankProfile]] = {}
        self._why_not: dict[int, str] = {}
        self._until_s = now_s + LEAD_S + order.seconds + ANSWER_S

    def take(self, node: int, done: ProfileDone) -> None:
        """A part of a node's answer; of another profile, of a node that wasn't asked, or a second one: passed over."""
        if done.run != self.order.run or node not in self._nodes or node in self._why_not:
            return
        self._profiles.setdefault(node, []).extend(row.profile(node) for row in done.profiles)
        if done.last:
            self._why_not[node] = done.why_not
            self.evidence[node] = done.evidence

    def is_over(self, now_s: float) -> bool:
        """Whether nothing more can be expected."""
        return len(self._why_not) == len(self._nodes) or now_s > self._until_s

    @property
    def profiles(self) -> list[RankProfile]:
        """Of all ranks that have one."""
        return [profile for node in sorted(self._profiles) for profile in self._profiles[node]]

    @property
    def problems(self) -> list[str]:
        """What is missing, a line a node."""
        lines = []
        for index, name in sorted(self._nodes.items()):
            why = self._why_not.get(index, "no answer")
            lines += [f"{name}: {why}"] if why else []
        return lines

    @property
    def silent(self) -> list[str]:
        """Names of the nodes that didn't answer."""
        return [name for index, name in sorted(self._nodes.items()) if index not in self._why_not]

    def result(self) -> dict[str, Any]:
        """The data of the event `profile`."""
        profiles = self.profiles
        return {
            "run": self.order.run,
            "reason": self.order.reason,
            "seconds": round(self.order.seconds, 3),
            "one_in": self.order.one_in,
            "nodes": len(self._nodes),
            "ranks": len(profiles),
            "timed": sum(profile.timed for profile in profiles),
            "iterations": round(median([len(profile.iteration_s) for profile in profiles] or [0])),
            "calls": sum(len(profile.calls) for profile in profiles),
            "problems": self.problems[:20],
        }
