"""The node process: analyzer of one node; on the step's first node it also keeps the master as its child.

    python -I -m greyhound.control.node --step-dir DIR --node-index I ...     (docs/interfaces.md 4)

STOP (child.py): last poll, `bye`, the step directory is removed, exit 0 within 2 s. Any failure: a line in the file
`unmonitored` of the step directory, which stays, exit 1. Nothing here reaches into the ranks.
"""

import logging
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from greyhound.control import address, child, limits, rendezvous
from greyhound.control.arguments import TOKEN_VARIABLE, NodeArguments, parse, take_token
from greyhound.control.events import EventLog
from greyhound.control.logs import log_to
from greyhound.control.messages import Hello
from greyhound.control.note import MasterSearch, Note, failure
from greyhound.control.record import Record, open_record
from greyhound.control.status import FILE, StatusWriter, read_status
from greyhound.control.stopper import Stopper, leave

if TYPE_CHECKING:
    from greyhound.control.analyzer import Analyzer
    from greyhound.control.link import Link

log = logging.getLogger(__name__)


class MasterChild:
    """The master beside the head's analyzer; if it dies, this process says so in its place."""

    def __init__(self, arguments: NodeArguments, token: str, note: Note) -> None:
        self._arguments = arguments
        self._note = note
        self._token = token
        self._process: subprocess.Popen[bytes] | None = None
        self._said = False

    def start(self) -> None:
        """Start it with the token in its environment."""
        try:
            head = address.head_address(self._arguments)
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-m", "greyhound.control.master", *self._arguments.argv(head)],
                stdin=subprocess.DEVNULL,
                env={**os.environ, TOKEN_VARIABLE: self._token},
                preexec_fn=child.die_with_parent(child.ORPHANED),
            )
        except OSError as error:
            self._lost(f"the master can't be started: {error}")

    def check(self) -> None:
        """Notice its death, once."""
        if self._process is not None and self._process.poll() is not None and not self._said:
            self._lost(f"the master died: {child.describe_exit(self._process.returncode)}")

    def _lost(self, reason: str) -> None:
        self._note.write(reason)
        self._speak_for_it(reason)

    def __enter__(self) -> "MasterChild":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """A failure of this process is the step's: without it the master would hear of it late or, just born, never."""
        if isinstance(error, Exception) and self._process is not None and not self._said:
            self._process.kill()
            self._process.wait()
            self._speak_for_it(failure(error))

    def _speak_for_it(self, reason: str) -> None:
        self._said = True
        arguments = self._arguments
        record = open_record(arguments.settings.record_path, arguments.name, arguments.step_dir).folder
        live = arguments.step_dir / FILE
        status = read_status(live) or {
            "v": 1,
            "job": arguments.name.job,
            "step": arguments.name.step,
            "restart": arguments.name.restart,
            "mode": arguments.settings.mode,
        }
        status |= {"state": "unmonitored", "reason": reason}
        StatusWriter(live, record / FILE).update(status, time.monotonic(), force=True)
        EventLog(record / "events.jsonl", arguments.name).append("unmonitored", time.time(), {"reason": reason})

    def ask_to_stop(self) -> None:
        """STOP; it drains what the nodes still say and ends."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(child.STOP)

    def stop(self, grace_s: float) -> None:
        """End it within the time given."""
        if self._process is not None:
            child.end(self._process, grace_s)


def build(arguments: NodeArguments, token: bytes, record: Record) -> tuple["Analyzer", "Link"]:
    """The analyzer of this node and its link; numpy and Redis are imported here, not before."""
    from greyhound.control.analyzer import Analyzer
    from greyhound.control.evidence import EvidenceCollector
    from greyhound.control.link import Finder, Link
    from greyhound.control.muting import SiteMute
    from greyhound.control.node_evidence import NodeEvidence
    from greyhound.control.profile_node import ProfileNode
    from greyhound.control.trace_node import TraceNode

    def resolve() -> str:
        return address.head_address(arguments)

    finder = Finder(token, arguments.prefix, resolve)
    hello = Hello(address.node_name(arguments), socket.gethostname(), os.getpid())
    link = Link(arguments.node_index, hello, finder.try_one)
    settings = arguments.settings
    mute = SiteMute(Path(settings.mute_file))
    trace = TraceNode(arguments.node_index, record.folder if record.root else None)
    evidence = NodeEvidence(EvidenceCollector(), hello.name)
    given = (arguments.step_dir, settings.mode, settings.threshold, settings.warmup, link)
    return Analyzer(*given, lambda: mute.reason, trace, ProfileNode(evidence), evidence.follow), link


def remove_step_dir(path: Path) -> None:
    """Remove the step directory; only a directory that is named like one."""
    if path.name.startswith("greyhound-") and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)


def run(arguments: NodeArguments, analyzer: "Analyzer", stopper: Stopper, each_round: Callable[[], None]) -> str:
    """Poll until told to stop; returns why."""
    from greyhound.control.analyzer import POLL_S

    while not stopper.reason and not analyzer.stop_reason:
        begun_s = time.monotonic()
        analyzer.poll(begun_s)
        each_round()
        if not arguments.step_dir.is_dir():
            return "the step directory is gone"
        stopper.wait(max(0.01, POLL_S - (time.monotonic() - begun_s)))
    return stopper.reason or analyzer.stop_reason


def monitor(arguments: NodeArguments, stopper: Stopper, note: Note, record: Record) -> int:
    """From the token to the end; the exit code."""
    text = take_token()
    try:
        token = rendezvous.token_bytes(text)
    except rendezvous.TokenError as error:
        note.write(str(error))
        return 2
    with MasterChild(arguments, text, note) as master:
        if arguments.node_index == 0:
            master.start()
        analyzer, link = build(arguments, token, record)
        search = MasterSearch(note)

        def each_round() -> None:
            master.check()
            search.check(link.connected, time.monotonic())

        reason = run(arguments, analyzer, stopper, each_round)
        log.info("ending: %s", reason)
        # Both end at the same time: the bus may hold up either of them for a while.
        master.ask_to_stop()
        analyzer.finish(reason)
        master.stop(stopper.left_s())
    remove_step_dir(arguments.step_dir)
    return 0


def main() -> int:
    """Entry point; exit 0 after a stop, 2 for a bad command line or token, 1 for every other failure."""
    arguments = parse("greyhound.control.node")
    stopper = Stopper()
    child.be_modest()
    limits.cap_memory(limits.ANALYZER_BYTES)
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    arguments.step_dir.mkdir(mode=0o700, exist_ok=True)
    with Note(arguments.step_dir) as note:
        record = open_record(arguments.settings.record_path, arguments.name, arguments.step_dir)
        log_to(record, arguments)
        return monitor(arguments, stopper, note, record)


if __name__ == "__main__":
    leave(main())
