"""One recording of calls as the master sees it: which nodes were asked, which answered. Pure."""

from collections.abc import Mapping
from typing import Any

from greyhound.control.messages import TraceDone, TraceOrder

ANSWER_S = 60.0  # to compress and write 256 MiB


class TraceRun:
    """From the order to the last node's answer, or to the end of patience."""

    def __init__(self, run: str, seconds: float, nodes: Mapping[int, str], now_s: float) -> None:
        """`nodes` that are asked, with their names; `now_s` wall clock."""
        self._order = TraceOrder(run, seconds)
        self._nodes = dict(nodes)
        self._answers: dict[int, TraceDone] = {}
        self._begun_s = now_s

    @property
    def order(self) -> TraceOrder:
        """What the nodes are told."""
        return self._order

    def take(self, node: int, done: TraceDone) -> None:
        """A node's answer; one of another recording, or of a node that wasn't asked, is passed over."""
        if done.run == self._order.run and node in self._nodes:
            self._answers.setdefault(node, done)

    def is_over(self, now_s: float) -> bool:
        """Whether nothing more can be expected."""
        waited_s = now_s - self._begun_s
        return len(self._answers) == len(self._nodes) or not 0 <= waited_s <= self._order.seconds + ANSWER_S

    def result(self) -> dict[str, Any]:
        """The data of the event `trace`."""
        rows = []
        for index, name in sorted(self._nodes.items()):
            answer = self._answers.get(index)
            files, calls = (answer.files, answer.calls) if answer else ([], 0)
            why_not = answer.why_not if answer else "no answer"
            rows.append({"node": name, "files": list(files), "calls": calls, "why_not": why_not})
        return {"run": self._order.run, "seconds": self._order.seconds, "nodes": rows}
