"""The hook's control page in this process: a plan comes in, a report goes out. Shared memory only, no socket."""

import ctypes
import json
import logging
from collections.abc import Mapping
from typing import Any

from greyhound.trace import layout, mailbox

log = logging.getLogger(__name__)


class ControlPage:
    """The mailboxes of this process's ring."""

    def __init__(self, plan: memoryview, report: memoryview) -> None:
        self._plan = plan
        self._report = report
        self._seen = 0
        self._damaged = False

    def new_plan(self) -> Any:
        """The newest plan as parsed JSON if there is one that wasn't returned before, else None."""
        try:
            found = mailbox.read(self._plan)
            if found is None or found[0] == self._seen:
                return None
            self._seen = found[0]
            return json.loads(found[1])
        except (mailbox.MailboxError, ValueError, RecursionError) as error:
            if not self._damaged:
                self._damaged = True
                log.warning("greyhound: a plan was ignored: %s", error)
            return None

    def report(self, fields: Mapping[str, Any]) -> None:
        """Tell the analyzer; a report that is too long is left out."""
        text = json.dumps(fields, separators=(",", ":")).encode()
        if len(text) <= mailbox.MOST_BYTES:
            mailbox.write(self._report, text)


def find() -> tuple[ControlPage | None, str]:
    """The page of the ring that the hook made in this process, or None and why there is none.

    It is found as a symbol in the process (`greyhound_control`): no path and no environment, so that another process's
    is never taken.
    """
    try:
        control = ctypes.CDLL(None).greyhound_control
    except AttributeError:
        return None, "the hook isn't in this process (no --greyhound)"
    control.argtypes, control.restype = [ctypes.POINTER(ctypes.c_uint32)], ctypes.c_void_p
    number = ctypes.c_uint32()
    address = control(ctypes.byref(number))
    if not address:
        return None, "the hook has no ring: no communicator was made yet, or it runs unmonitored"
    if number.value != layout.GH_LAYOUT:
        return None, f"the hook's ring has layout {number.value}, this package knows {layout.GH_LAYOUT}"

    def at(offset: int) -> memoryview:
        return memoryview((ctypes.c_char * layout.GH_MAILBOX_BYTES).from_address(address + offset)).cast("B")

    return ControlPage(at(layout.GH_OFF_PLAN), at(layout.GH_OFF_REPORT)), ""
