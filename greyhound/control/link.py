"""The analyzer's side of the bus: finds the master quietly, again and again, and keeps what can't be sent yet."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

from greyhound.control import rendezvous
from greyhound.control.bus import Bus, BusError, RedisBus
from greyhound.control.messages import Data, Hello, IterationBatch, Message, encode
from greyhound.control.plan_message import PluginWord

FIRST_BACKOFF_S = 0.3
LONGEST_BACKOFF_S = 15.0
KEPT = 1000

log = logging.getLogger(__name__)


class Finder:
    """Tries one port of the step's list a call, so that reading the rings is never held up for long."""

    def __init__(self, token: bytes, prefix: str, resolve: Callable[[], str]) -> None:
        self._token = token
        self._prefix = prefix
        self._resolve = resolve
        self._address = ""
        self._k = 0
        self._thread: threading.Thread | None = None

    def _look_up(self) -> None:
        try:
            self._address = self._resolve()
        except OSError as error:
            log.warning("the address of the step's first node isn't known: %s", error)

    def _have_address(self) -> bool:
        if self._address:
            return True
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._look_up, name="gh-address", daemon=True)
            self._thread.start()
            self._thread.join(0.05)
        return bool(self._address)

    def try_one(self) -> tuple[Bus | None, bool]:
        """(the bus if this port has it, whether the list has been tried to its end)."""
        if not self._have_address():
            return None, True
        k = self._k
        try:
            return RedisBus(self._address, rendezvous.candidate(self._token, k), self._prefix), False
        except BusError as error:
            log.debug("%s", error)
        self._k = (k + 1) % rendezvous.TRIES
        return None, self._k == 0


class Link:
    """Sends to the master when it is there. Reports are kept until then; what comes again by itself is not."""

    def __init__(self, node: int, hello: Hello, try_one: Callable[[], tuple[Bus | None, bool]]) -> None:
        self._node = node
        self._hello = hello
        self._try_one = try_one
        self._bus: Bus | None = None
        self._waiting: deque[Data] = deque(maxlen=KEPT)
        self._seq = 0
        self._due_s = 0.0
        self._backoff_s = FIRST_BACKOFF_S

    @property
    def connected(self) -> bool:
        """Whether the master's bus is held."""
        return self._bus is not None

    def step(self, now_s: float) -> None:
        """Go on looking for the master if it is lost and the back-off is over (`now_s` monotonic)."""
        if self._bus is not None or now_s < self._due_s:
            return
        bus, exhausted = self._try_one()
        if bus is not None:
            self._bus = bus
            self._backoff_s = FIRST_BACKOFF_S
            log.info("connected to the master")
            kept = list(self._waiting)
            self._waiting.clear()
            for data in [self._hello, *kept]:
                self.send(data)
        elif exhausted:
            self._due_s = now_s + self._backoff_s
            self._backoff_s = min(2 * self._backoff_s, LONGEST_BACKOFF_S)

    def send(self, data: Data) -> None:
        """Publish, or keep for later what must not get lost."""
        if self._bus is not None:
            self._seq += 1
            try:
                self._bus.publish("up", encode(Message(self._node, self._seq, time.time_ns(), data)))
                return
            except BusError as error:
                self._drop(error)
        if not isinstance(data, IterationBatch | PluginWord | Hello):
            self._waiting.append(data)

    def receive(self) -> list[str]:
        """Messages of the master since the last call."""
        if self._bus is None:
            return []
        try:
            return self._bus.read("down")
        except BusError as error:
            self._drop(error)
            return []

    def master_alive(self) -> bool:
        """Whether the master's heartbeat holds."""
        if self._bus is None:
            return False
        try:
            return self._bus.master_alive()
        except BusError as error:
            self._drop(error)
            return False

    def _drop(self, error: BusError) -> None:
        log.warning("the master is out of reach, looking for it again: %s", error)
        if self._bus is not None:
            self._bus.close()
        self._bus = None

    def close(self) -> None:
        """Let go of the bus."""
        if self._bus is not None:
            self._bus.close()
        self._bus = None
