"""A node's part in S2: plans go into the ranks' mailboxes, what their plugins tell goes to the master."""

import json
from collections.abc import Collection
from typing import Any, Protocol

from greyhound.control.fields import checked, table_of
from greyhound.control.plan_message import PlanOrder, PluginWord, RoleRow
from greyhound.trace.mailbox import MOST_BYTES

REPEAT_S = 5.0
VERSION = 1


class Plugged(Protocol):
    """What planning needs of a rank's watch."""

    @property
    def key(self) -> str: ...

    def plugin_word(self) -> Any: ...

    def tell_plan(self, text: bytes) -> None: ...


_TABLE = {name: check for name, check in table_of(RoleRow).items() if name != "key"}


def row_of(key: str, word: Any) -> RoleRow | None:
    """What a plugin told, checked; None where it is nothing that this release knows."""
    try:
        roles = word["roles"] if isinstance(word, dict) and word.get("v") == VERSION else None
        return RoleRow(key, **checked(_TABLE, {**word, "replica": roles["dp"]})) if isinstance(roles, dict) else None
    except (ValueError, KeyError):
        return None


class PlanNode:
    """Keeps the newest plan, for ranks that appear later, too."""

    def __init__(self) -> None:
        self._plan: PlanOrder | None = None
        self._told: dict[str, int] = {}
        self._sent: list[RoleRow] = []
        self._repeat_at_s = 0.0

    def take(self, order: PlanOrder) -> None:
        """A newer plan replaces the one before."""
        if self._plan is None or order.number > self._plan.number:
            self._plan = order

    def step(self, now_s: float, watches: Collection[Plugged]) -> list[PluginWord]:
        """Once a second: hand on the plan, and what is to be sent."""
        rows = [row for row in (row_of(watch.key, watch.plugin_word()) for watch in watches) if row is not None]
        if self._plan is not None:
            self._hand_on(self._plan, watches)
        if not rows or (rows == self._sent and now_s < self._repeat_at_s):
            return []
        self._sent, self._repeat_at_s = rows, now_s + REPEAT_S
        return [PluginWord(rows)]

    def _hand_on(self, plan: PlanOrder, watches: Collection[Plugged]) -> None:
        """One that no mailbox holds is left out: the master sees that nobody takes it."""
        fields = {"v": VERSION, "number": plan.number, "microbatches": plan.microbatches}
        text = json.dumps(fields, separators=(",", ":")).encode()
        keys = {watch.key for watch in watches}
        self._told = {key: number for key, number in self._told.items() if key in keys}
        for watch in watches if len(text) <= MOST_BYTES else ():
            if self._told.get(watch.key) != plan.number:
                self._told[watch.key] = plan.number
                watch.tell_plan(text)
