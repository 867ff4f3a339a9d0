"""The private Slurm cluster: bring-up, environment and the few commands that tests and the demo need."""

import contextlib
import os
import pwd
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from greyhound.sandbox import config, hostname, interrupts, listeners, ports, processes, programs, state, teardown
from greyhound.sandbox.daemons import Starter
from greyhound.sandbox.errors import SandboxError
from greyhound.sandbox.layout import DEFAULT_NAME, Layout, existing
from greyhound.sandbox.page import StandinPage

MAX_NODES, MAX_GPUS = 64, 16
FINAL_STATES = re.compile(r"BOOT_FAIL|CANCELLED|COMPLETED|DEADLINE|FAILED|NODE_FAIL|OUT_OF_MEMORY|PREEMPTED|TIMEOUT")


def _quiet(_: str) -> None:
    return


class Sandbox:
    """A running (or broken) sandbox of this user."""

    def __init__(self, layout: Layout, current: state.State) -> None:
        self.layout = layout
        self.state = current

    @classmethod
    def up(
        cls,
        name: str = DEFAULT_NAME,
        *,
        nodes: int = 4,
        gpus_per_node: int = 2,
        plugin: bool = True,
        say: Callable[[str], None] = _quiet,
    ) -> Self:
        """Bring the sandbox up, or return the one that is up; what a crash left is cleaned first.

        Raises SandboxError, with everything torn down again, if a daemon fails or listens beyond loopback.
        """
        _check_size(nodes, gpus_per_node)
        layout = Layout(name)
        paths = programs.require(redis=plugin)
        with ports.lock(f"{layout.uid}-{name}"):
            found = cls.find(name)
            if found is not None and found.is_up():
                size = f"{len(found.state.nodes)} nodes, {found.state.gpus_per_node} GPUs each"
                say(f"sandbox {name} is already up ({size})")
                found._write_plugstack(wanted=plugin, say=say)
                found._make_page(say)
                return found
            if teardown.down(layout, say):
                say(f"cleaned what a crashed sandbox {name} left")
            with contextlib.ExitStack() as undo:
                undo.callback(_take_back, layout, say)
                sandbox = cls(layout, _prepare(layout, paths, nodes, gpus_per_node))
                sandbox._write_plugstack(wanted=plugin, say=say)
                sandbox._make_page(say)
                Starter(layout, sandbox.state, paths, say).start_all()
                sandbox._check_listeners()
                sandbox.state.complete = True
                sandbox.state.save(layout)
                undo.pop_all()
            return sandbox

    @classmethod
    def find(cls, name: str = DEFAULT_NAME) -> Self | None:
        """The sandbox NAME if its state can be read, else None."""
        layout = Layout(name)
        current = state.load(layout.state)
        return None if current is None else cls(layout, current)

    @classmethod
    def get(cls, name: str = DEFAULT_NAME) -> Self:
        """The running sandbox NAME; SandboxError with the mend otherwise."""
        found = cls.find(name)
        if found is None:
            raise SandboxError(f"no sandbox {name!r} is up: `greyhound sandbox up --name {name}` starts it")
        if not found.is_up():
            dead = ", ".join(found.dead()) or "it did not come up completely"
            raise SandboxError(
                f"sandbox {name!r} is broken (ended: {dead}): run `greyhound sandbox up --name {name}` again"
            )
        return found

    def down(self, say: Callable[[str], None] = _quiet) -> None:
        """End jobs and daemons, remove the directory and what is left in /dev/shm."""
        take_down(self.layout.name, say)

    def dead(self) -> list[str]:
        """Names of recorded daemons that no longer run."""
        return [one.name for one in self.state.processes if not processes.alive(one)]

    def is_up(self) -> bool:
        return self.state.complete and not self.dead()

    def env(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """Environment for commands in the sandbox: `base` (default: this process's) with ours on top."""
        environment = dict(os.environ if base is None else base)
        folders = [str(Path(sys.executable).parent), environment.get("PATH", programs.SEARCH), "/usr/sbin"]
        environment["PATH"] = os.pathsep.join(folders)
        environment["SLURM_CONF"] = str(self.layout.conf)
        environment["GREYHOUND_RECORD_DIR"] = str(self.layout.records)
        if self.layout.page.exists():
            environment["GREYHOUND_STANDIN_PAGE"] = str(self.layout.page)
        return environment

    def run(
        self, command: Sequence[str], *, timeout_s: float = 60.0, user: str | None = None, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the sandbox (root may name another user); subprocess.TimeoutExpired after timeout_s."""
        return subprocess.run(
            list(command),
            env=self.env(),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            user=user,
            group=None if user is None else pwd.getpwnam(user).pw_gid,
            extra_groups=None if user is None else [],
            preexec_fn=hostname.preparation() if user is None else None,
            cwd=cwd or self.layout.records,
            stdin=subprocess.DEVNULL,
        )

    def srun(self, *arguments: str, timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
        return self.run(["srun", *arguments], timeout_s=timeout_s)

    def submit(self, *arguments: str, timeout_s: float = 30.0) -> int:
        """sbatch with these arguments; the job's id. SandboxError with sbatch's own words if refused."""
        answer = self.run(["sbatch", "--parsable", *arguments], timeout_s=timeout_s)
        if answer.returncode != 0:
            raise SandboxError(f"sbatch refused: {answer.stderr.strip()}")
        return int(answer.stdout.strip().split(";")[0])

    def job_state(self, job: int) -> str:
        """State as squeue prints it, "UNKNOWN" where slurmctld has no such job (any more)."""
        answer = self.run(["squeue", "-h", "-t", "all", "-j", str(job), "-o", "%T"], timeout_s=30)
        return (answer.stdout.split() or ["UNKNOWN"])[0]

    def wait(self, job: int, *, timeout_s: float = 120.0) -> str:
        """Wait until the job has ended; its final state. TimeoutError otherwise."""
        deadline = time.monotonic() + timeout_s
        while not FINAL_STATES.match(current := self.job_state(job)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"job {job} is {current} after {timeout_s:.0f} s")
            time.sleep(0.2)
        return current

    def _write_plugstack(self, *, wanted: bool, say: Callable[[str], None]) -> None:
        self.state.plugin = config.write_plugstack(self.layout, wanted=wanted)
        self.state.save(self.layout)
        if wanted and not self.state.plugin:
            say(f"no SPANK plugin in {config.NATIVE}: `make -C spank` builds it; --greyhound is unknown until then")

    def _make_page(self, say: Callable[[str], None]) -> None:
        """Without the stand-in's header, or with no GPU, the cluster is a plain one."""
        names = [f"{node}:{gpu}" for node in self.state.nodes for gpu in range(self.state.gpus_per_node)]
        if not names or self.layout.page.exists():
            return
        try:
            StandinPage.create(self.layout.page, names).close()
        except SandboxError as error:
            say(f"no stand-in page: {error}")

    def _check_listeners(self) -> None:
        pids = [process.pid for process in processes.of_sandbox(self.layout, self.state.processes)]
        foreign = listeners.foreign(pids)
        if foreign:
            raise SandboxError(f"not on loopback only: {', '.join(foreign)}; everything was taken down again")


def _take_back(layout: Layout, say: Callable[[str], None]) -> None:
    """Undo a bring-up that failed or was interrupted."""
    with interrupts.put_off(say):
        teardown.down(layout, _quiet)


def take_down(name: str, say: Callable[[str], None] = _quiet) -> bool:
    """Take the sandbox NAME down, whole or broken; False if there was nothing."""
    layout = Layout(name)
    with ports.lock(f"{layout.uid}-{name}"):
        return teardown.down(layout, say)


def running() -> list[Sandbox]:
    """All sandboxes of this user that left a state, up or broken."""
    found = (Sandbox.find(layout.name) for layout in existing())
    return [sandbox for sandbox in found if sandbox is not None]


def _check_size(nodes: int, gpus_per_node: int) -> None:
    if not 1 <= nodes <= MAX_NODES:
        raise SandboxError(f"{nodes} nodes: give 1 to {MAX_NODES}")
    if not 0 <= gpus_per_node <= MAX_GPUS:
        raise SandboxError(f"{gpus_per_node} GPUs a node: give 0 to {MAX_GPUS}")


def _prepare(layout: Layout, paths: dict[str, str], nodes: int, gpus_per_node: int) -> state.State:
    """Make the directory, claim ports and job ids, write state and configuration."""
    release = programs.slurm_release(paths["slurmctld"])
    names = [f"n{index}" for index in range(1, nodes + 1)]
    config.make_directory(layout)
    with ports.lock(f"{layout.uid}"):
        others = state.others()
        current = state.State(
            name=layout.name,
            directory=str(layout.directory),
            conf=str(layout.conf),
            page=str(layout.page),
            release="{}.{:02}".format(*release),
            nodes=names,
            gpus_per_node=gpus_per_node,
            first_job_id=ports.choose_first_job_id(others),
            ports=ports.choose(["slurmctld", "slurmdbd", *names], others),
        )
        current.save(layout)
    settings = config.Settings(release, names, gpus_per_node, current.first_job_id, current.ports)
    config.write(layout, settings)
    return current
