"""The monitor of `greyhound launch`: step directory, node process and its lines, all on one machine."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from greyhound.config import Settings
from greyhound.control import child, lines, rendezvous, step_lock
from greyhound.control.arguments import TOKEN_VARIABLE
from greyhound.control.events import EventTail, read_events
from greyhound.control.muting import SiteMute
from greyhound.control.names import SHM, StepName, parse_step_dir, step_dir
from greyhound.control.record import open_record

HOOK = "libgreyhound_hook.so"
RING_BYTES = 5 * 2**20
TAIL_S = 0.25
STOP_GRACE_S = 3.0
SCRUBBED = ("PATH", "HOME", "USER", "LANG", "SLURM_CONF")


class UnmonitoredError(RuntimeError):
    """The job can only run without us; the text says why and what mends it."""


def local_name(pid: int) -> StepName:
    """The id of a launch."""
    return StepName(f"local-{pid}", "0", 0)


def sweep_dead_launches(shm: Path = SHM) -> None:
    """Remove step directories that this user's killed launches left behind; live ones and Slurm's stay.

    A live launch holds its directory's lock; the pid is looked at for the moment in which it doesn't yet.
    """
    for path in shm.glob(f"greyhound-{os.getuid()}-local-*"):
        parsed = parse_step_dir(path)
        if parsed is None:
            continue
        pid = parsed[1].job.removeprefix("local-")
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            step_lock.remove_dead(path)


def preload(hook: Path, old: str) -> str:
    """LD_PRELOAD with the hook first and the others kept."""
    others = [entry for entry in old.replace(" ", ":").split(":") if entry and entry != str(hook)]
    return ":".join([str(hook), *others])


def _muted(path: Path) -> str:
    """Why the site lets nothing be watched now; the file is looked at in a thread, as its file system may hang."""
    mute = SiteMute(path)
    mute.stop()
    return mute.reason


class Monitor:
    """Watches the ranks of one launch; whatever breaks here is said once on stderr and the ranks go on."""

    def __init__(self, settings: Settings, count: int, native: Path, say: Callable[[str], None]) -> None:
        self._settings = settings
        self._count = count
        self._hook = native / HOOK
        self._say = say
        self._name = local_name(os.getpid())
        self._node: subprocess.Popen[bytes] | None = None
        self._tail: EventTail | None = None
        self._tail_due_s = 0.0
        self._unmonitored_said = False
        self._lock: int | None = None
        self.step_dir = step_dir(os.getuid(), self._name, 0)
        self.events: Path | None = None

    @property
    def record(self) -> Path | None:
        """The record folder, once started."""
        return self.events.parent if self.events else None

    def start(self) -> dict[str, str]:
        """Make the step directory, start the node process; what the ranks need in their environment.

        UnmonitoredError when that is impossible; nothing is left behind then.
        """
        self._check()
        try:
            self._make_step_dir()
            record = open_record(self._settings.record_path, self._name, self.step_dir)
            self.events = record.folder / "events.jsonl"
            if record.notice:
                self._say(record.notice)
            self._tail = EventTail(self.events)
            self._node = self._spawn_node()
        except OSError as error:
            self._remove()
            raise UnmonitoredError(f"the monitor can't be started: {error}") from None
        return {
            "LD_PRELOAD": preload(self._hook, os.environ.get("LD_PRELOAD", "")),
            "GREYHOUND_DIR": str(self.step_dir),
            "GREYHOUND_NODE_INDEX": "0",
        }

    def _check(self) -> None:
        muted = _muted(Path(self._settings.mute_file))
        if muted:
            raise UnmonitoredError(muted)
        if not self._hook.is_file():
            raise UnmonitoredError(f"{self._hook} is missing: build it with `sh hook/build.sh` or reinstall greyhound")
        if not SHM.is_dir():
            raise UnmonitoredError(f"{SHM} is missing: mount a tmpfs there")
        space = os.statvfs(SHM)
        free, needed = space.f_bavail * space.f_frsize, self._count * RING_BYTES
        if free < needed:
            raise UnmonitoredError(f"{SHM} has {free >> 20} MiB free, {needed >> 20} MiB are needed: make room there")

    def _make_step_dir(self) -> None:
        sweep_dead_launches()
        self._lock = step_lock.make(self.step_dir)

    def _spawn_node(self) -> subprocess.Popen[bytes]:
        settings = self._settings
        argv = [sys.executable, "-I", "-m", "greyhound.control.node", "--step-dir", str(self.step_dir)]
        argv += ["--node-index", "0", "--node-count", "1", "--node-list", "localhost", "--job", self._name.job]
        argv += ["--step", "0", "--restart", "0", "--mode", settings.mode, "--tasks", str(self._count)]
        for key in ("threshold", "warmup", "freeze", "s4", "max_mode", "mute_file"):
            argv += ["--option", f"{key}={getattr(settings, key)}"]
        argv += ["--record-dir", str(settings.record_path), "--redis-server", settings.redis_server]
        environment = {name: os.environ[name] for name in SCRUBBED if name in os.environ}
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**environment, TOKEN_VARIABLE: rendezvous.new_token()},
            # While it lives, so does the launch for others, even if this process was killed.
            pass_fds=() if self._lock is None else (self._lock,),
            process_group=0,
            preexec_fn=child.die_with_parent(child.ORPHANED),
        )

    def round(self) -> None:
        """Print what happened since the last round; notice a dead analyzer."""
        now_s = time.monotonic()
        if now_s < self._tail_due_s:
            return
        self._tail_due_s = now_s + TAIL_S
        self._print_new()
        if self._node is not None and self._node.poll() is not None:
            self._say_unmonitored(
                f"unmonitored: the analyzer ended early: {child.describe_exit(self._node.returncode)}"
            )

    def _say_unmonitored(self, line: str) -> None:
        """Once a launch: the master and this process may both notice the same death."""
        if not self._unmonitored_said:
            self._unmonitored_said = True
            self._say(line)

    def _print_new(self) -> None:
        for event in self._tail.new() if self._tail else []:
            if event["kind"] == "unmonitored":
                self._say_unmonitored(lines.event_line(event))
            elif event["kind"] in lines.FOR_THE_USER and event["kind"] != "end":
                self._say(lines.event_line(event))

    def stop(self) -> dict[str, Any] | None:
        """End the node process, clean up; the `end` event if the master wrote one."""
        if self._node is not None:
            died = self._node.poll() is not None
            child.end(self._node, STOP_GRACE_S)
            if died:
                time.sleep(0.1)
        self._print_new()
        last = [event for event in read_events(self.events) if event["kind"] == "end"] if self.events else []
        self._remove()
        return last[-1] if last else None

    def _remove(self) -> None:
        if self._lock is not None:
            step_lock.remove(self.step_dir, self._lock)
            self._lock = None
