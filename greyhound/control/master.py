"""The master: the step's Redis, its event log, its status and its episodes. A child of the head's node process.

STOP (child.py): drains the nodes' goodbyes for at most DRAIN_S, writes `end`, ends Redis, exit 0.
"""

import logging
import time
from collections.abc import Callable
from typing import Any

from greyhound.control import child, limits, lines, redis_server, rendezvous
from greyhound.control.arguments import NodeArguments, parse, take_token
from greyhound.control.bus import Bus, BusError
from greyhound.control.comment import CommentError, CommentWriter
from greyhound.control.events import EventLog
from greyhound.control.fail_stop import FailStops
from greyhound.control.inbox import Inbox
from greyhound.control.job import Job
from greyhound.control.logs import log_to
from greyhound.control.messages import AbMeasure, Bye, Message, TraceDone, encode
from greyhound.control.mitigator import Mitigator
from greyhound.control.notify import Notifier, NotifyError
from greyhound.control.owner import Owner
from greyhound.control.plan_message import PluginWord
from greyhound.control.profile_message import ProfileDone
from greyhound.control.profiler import Judge, Profiler
from greyhound.control.record import Record, open_record
from greyhound.control.requests import RequestBox
from greyhound.control.run_history import RunHistory
from greyhound.control.runs import RunBook
from greyhound.control.stand_message import Stand
from greyhound.control.status import FILE, StatusWriter
from greyhound.control.stopper import END_S, PARENT_DIED, Stopper, leave
from greyhound.control.summary import Gathered
from greyhound.localize.judge import judge

DRAIN_S, DRAIN_READ_S = 0.8, 0.01  # a dead node says no goodbye: whether the others have left is looked at often
ROUND_S = 0.2
BEAT_S = 1.0
LOST_AFTER_S = 5.0
MOST_RESTARTS = 3
COMMENT_S = 0.4  # for reading and writing the job's comment, of which each takes some 10 ms
REDIS_STOP_S = 0.3  # what is kept of the time to end for Redis
NOTIFY_S = 0.05  # enough to start the command; it goes on without us, and the step need not wait for it

log = logging.getLogger(__name__)


class Master:
    """Takes messages from a bus until told to stop; tests drive it with a MemoryBus."""

    def __init__(
        self,
        arguments: NodeArguments,
        record: Record,
        notifier: Notifier | None = None,
        sleep: Callable[[float], None] = time.sleep,
        comment: CommentWriter | None = None,
        judge: Judge = judge,
    ) -> None:
        self._sleep = sleep
        self._comment = comment
        self._gathered = Gathered()
        self._events = EventLog(record.folder / "events.jsonl", arguments.name)
        self._status = StatusWriter(arguments.step_dir / FILE, record.folder / FILE)
        self._notifier = notifier
        self._inbox = Inbox()
        self._gone: set[int] = set()
        self._heard: set[int] = set()
        self._beat_due_s = 0.0
        self._failing_since_s: float | None = None
        self.job = Job(
            arguments.name, arguments.settings.mode, arguments.tasks, arguments.node_count, self._emit, log.warning
        )
        self._profiler = Profiler(self.job, self._emit, judge)
        self._fail_stops = FailStops(self.job, self._emit)
        self._mitigator = Mitigator(self.job, self._profiler, self._emit)
        self._owner = Owner(RequestBox(record.folder), self.job, arguments.settings, self._emit, self._profiler)
        self._history = RunHistory(RunBook(record.root) if record.root else None, self.job, self._emit)
        self._bus: Bus | None = None
        self._seq = 0
        self._start(arguments, record)

    def _start(self, arguments: NodeArguments, record: Record) -> None:
        settings = arguments.settings
        self.job.start(
            time.time(),
            {
                "mode": settings.mode,
                "threshold": settings.threshold,
                "warmup": settings.warmup,
                "nodes": arguments.node_count,
                "node_list": arguments.node_list,
                "tasks": arguments.tasks,
                "record": str(record.folder),
            },
        )
        if record.notice:
            self._warn(record.notice)

    def _emit(self, kind: str, t_s: float, *args: Any, **kwargs: Any) -> None:
        event = self._events.append(kind, t_s, *args, **kwargs)
        if self._gathered.take(event) and self._comment is not None:
            self._comment.update(self._gathered.summary)
        if self._notifier is not None and kind in lines.FOR_THE_USER:
            self._notifier.tell(lines.event_line(event))
        if self._events.trouble:
            self._warn(self._events.trouble)

    def _warn(self, text: str) -> None:
        """A line for the job's own output and the status, each text once."""
        if text in self.job.notices:
            return
        self.job.notice(text)
        if self._notifier is not None:
            self._notifier.tell(text)

    def round(self, bus: Bus | None, wait_s: float = ROUND_S) -> None:
        """Take what came, bring job and status up to now; a lost bus makes the job unmonitored, no more."""
        begun_s = time.monotonic()
        if bus is not None:
            self._listen(bus)
        self.job.tick(time.time())
        self._owner.step(time.time())
        self._profiler.step(time.time(), time.monotonic(), self._owner.comparing)
        self._fail_stops.step(time.time(), time.monotonic())
        self._mitigator.step(time.time(), time.monotonic())
        self._history.step(time.time())
        self.publish_status()
        # A thousand nodes send all the time: reading at each message would be a round a message.
        self._sleep(max(0.0, wait_s - (time.monotonic() - begun_s)))

    def _listen(self, bus: Bus) -> None:
        now_s = time.monotonic()
        try:
            if now_s >= self._beat_due_s:
                self._beat_due_s = now_s + BEAT_S
                bus.beat()
            self._send(bus)
            texts = bus.read("up")
        except BusError as error:
            self._bus_failed(error)
            return
        if self._failing_since_s is not None:
            self._failing_since_s = None
            self.job.monitored_again(time.time())
        for text in texts:
            self.take(text)

    def _send(self, bus: Bus) -> None:
        """What the analyzers must be told; what can't be sent now stays."""
        if bus is not self._bus:
            if self._bus is not None:
                self._owner.new_bus()
                self._profiler.new_bus()
                self._mitigator.new_bus()
            self._bus = bus
        for outgoing in (self._owner.outgoing, self._profiler.outgoing, self._mitigator.outgoing):
            while outgoing:
                self._seq += 1
                bus.publish("down", encode(Message(-1, self._seq, time.time_ns(), outgoing[0])))
                del outgoing[0]

    def _bus_failed(self, error: BusError) -> None:
        """A loaded machine may answer late: only a while of failures counts."""
        now_s = time.monotonic()
        if self._failing_since_s is None:
            self._failing_since_s = now_s
            log.warning("%s", error)
        elif now_s - self._failing_since_s > LOST_AFTER_S:
            self.lost(f"Redis is out of reach: {error}")

    def take(self, text: str) -> None:
        """One message as it came from the bus."""
        message = self._inbox.open(text)
        if message is None:
            return
        if isinstance(message.data, Bye):
            self._gone.add(message.node)
        self._heard.add(message.node)
        if isinstance(message.data, AbMeasure | TraceDone):
            self._owner.take(message.node, message.data)
        elif isinstance(message.data, ProfileDone):
            self._profiler.take(message.node, message.data)
        elif isinstance(message.data, PluginWord):
            self._mitigator.take(message.node, message.data)
        elif isinstance(message.data, Stand):
            self._fail_stops.take(message.node, message.data, time.time(), time.monotonic())
        self.job.handle(message, time.time())

    def lost(self, reason: str) -> None:
        """The monitoring broke down."""
        self.job.unmonitored(reason, time.time())

    def publish_status(self, force: bool = False) -> None:
        """Write status.json where it is due."""
        self._status.update(self.job.status(time.time()), time.monotonic(), force)

    def on_a_new_bus(self) -> None:
        """Who was heard before may not have found it yet."""
        self._heard.clear()

    def drain(self, bus: Bus | None) -> None:
        """Wait for the goodbyes of the nodes that are there, DRAIN_S at most: the step's end waits for us."""
        deadline_s = time.monotonic() + DRAIN_S
        while bus is not None and self._heard - self._gone and time.monotonic() < deadline_s:
            try:
                alone = bus.others() == 0  # whoever says nothing any more has died
                texts = bus.read("up", 0.0 if alone else DRAIN_READ_S)
            except BusError:
                return
            for text in texts:
                self.take(text)
            if alone and not texts:
                return

    def finish(self, reason: str, left_s: float = COMMENT_S) -> None:
        """Last event, last status, the job's comment where the last word is news; it has ``left_s`` at most."""
        now_s = time.time()
        self.job.tick(now_s)
        self._history.finish()
        self._owner.finish(now_s)
        self._profiler.finish(now_s)
        self.job.finish(now_s, reason)
        self._leave()
        if self._comment is not None:
            self._comment.wait(min(COMMENT_S, left_s))

    def tell(self, text: str) -> None:
        """A line for the job's own output, the status and the log, each text once."""
        if text not in self.job.notices:
            log.warning("%s", text)
        self._warn(text)

    def abandon(self, reason: str) -> None:
        """The master must go although the job does not end: the plugin, which sees why, says it in the job's output."""
        notifier, self._notifier = self._notifier, None
        self.lost(reason)
        self._leave()
        if notifier is not None:
            notifier.finish(NOTIFY_S)

    def _leave(self) -> None:
        self.publish_status(force=True)
        if self._notifier is not None:
            self._notifier.finish(NOTIFY_S)


def _notifier(arguments: NodeArguments) -> Notifier | None:
    """Through Slurm where there is one; `greyhound launch` prints the lines itself."""
    if not arguments.in_slurm:
        return None
    from greyhound.slurm.client import CommandClient, SlurmError

    client = CommandClient()

    def send(text: str) -> None:
        try:
            client.notify(arguments.name.job, text)
        except (SlurmError, ValueError) as error:
            raise NotifyError(str(error)) from None

    return Notifier(send)


def _comment(arguments: NodeArguments) -> CommentWriter | None:
    """The job's comment, where there is a Slurm."""
    if not arguments.in_slurm:
        return None
    from greyhound.slurm.client import CommandClient, SlurmError

    # A command that hangs must not outlive the step.
    client, job = CommandClient(timeout_s=END_S, preexec=child.die_with_parent()), arguments.name.job

    def read() -> str:
        try:
            return client.comment(job)
        except (SlurmError, ValueError) as error:
            raise CommentError(str(error)) from None

    def write(text: str) -> None:
        try:
            client.set_comment(job, text)
        except (SlurmError, ValueError) as error:
            raise CommentError(str(error)) from None

    return CommentWriter(read, write)


class RedisKeeper:
    """The step's Redis; one that dies is started again a few times, then the job is unmonitored."""

    def __init__(
        self, arguments: NodeArguments, token: bytes, master: Master, stopped: Callable[[], bool] = lambda: False
    ) -> None:
        address = arguments.head_address or "127.0.0.1"
        self._binary = arguments.settings.redis_server
        self._site = redis_server.Site(address, arguments.prefix, arguments.step_dir, stopped)
        self._next_k = 0
        self._token = token
        self._master = master
        self._server: redis_server.RedisServer | None = None
        self._restarts = 0
        self._start()

    @property
    def bus(self) -> Bus | None:
        """The master's connection, None while there is no server."""
        return self._server.bus if self._server else None

    def _start(self) -> None:
        try:
            self._server = redis_server.start(self._token, self._site, self._binary, self._next_k)
            self._next_k = self._server.k + 1
        except redis_server.RedisUnavailableError as error:
            if self._site.stopped():
                log.info("%s", error)
                return
            log.error("unmonitored: %s", error)
            self._master.lost(str(error))

    def check(self) -> None:
        """Notice a dead server and start another at a later port; the analyzers find it by the same list."""
        if self._server is None or self._server.process.poll() is None:
            return
        died = f"redis-server died: {child.describe_exit(self._server.process.returncode)}"
        self.stop()
        self._restarts += 1
        if self._restarts > MOST_RESTARTS:
            self._master.lost(f"{died}, {self._restarts} times")
            return
        self._master.tell(f"{died}; started again")
        self._master.on_a_new_bus()
        self._start()

    def stop(self) -> None:
        """End the server."""
        if self._server is not None:
            self._server.stop()
        self._server = None


def main() -> int:
    """Entry point; exit 0 after a stop, 2 for a bad command line or token."""
    arguments = parse("greyhound.control.master")
    stopper = Stopper()
    limits.cap_memory(limits.MASTER_BYTES)
    record = open_record(arguments.settings.record_path, arguments.name, arguments.step_dir)
    log_to(record, arguments)
    try:
        token = rendezvous.token_bytes(take_token())
    except rendezvous.TokenError as error:
        log.error("%s", error)
        return 2
    master = Master(arguments, record, _notifier(arguments), stopper.wait, _comment(arguments))
    master.publish_status()
    redis = RedisKeeper(arguments, token, master, lambda: bool(stopper.reason))
    try:
        while not stopper.reason:
            redis.check()
            master.round(redis.bus)
        if stopper.reason == PARENT_DIED:
            master.abandon("the head's analyzer died; the job goes on")
        else:
            master.drain(redis.bus)
            master.finish(stopper.reason, stopper.left_s() - REDIS_STOP_S)
    finally:
        redis.stop()
    return 0


if __name__ == "__main__":
    leave(main())
