"""The test cluster with a plugstack.conf of our own and a node process that records how it was started."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from greyhound.sandbox.cluster import Sandbox

SPANK = Path(__file__).resolve().parents[2] / "spank"
HOOK = "libgreyhound_hook.so"

# How our processes are told to end (spank/stop.h), as sh's trap takes it.
STOP = signal.SIGRTMIN + 5
# Stands in for python: writes what it was given, keeps the step directory until it is told to stop.
RECORDER = (
    """#!/bin/sh
out=@RECORDS@/$$
{{ for word in "$@"; do echo "arg $word"; done; env | sed 's/^/env /'; id -u | sed 's/^/uid /'
  sed -n 's/^\\(Uid\\|Gid\\|Groups\\):[[:space:]]*/\\1 /p' /proc/$$/status; }} > $out.new
mv $out.new $out
trap 'echo stop >> $out; rm -rf "$5"; exit 0' @STOP@
echo started
while :; do sleep 0.05; done
""".replace("{{", "{")
    .replace("}}", "}")
    .replace("@STOP@", str(STOP))
)

# What a training does: it opens its ring. Then it waits until the node process was started.
TRAIN = (
    "touch $GREYHOUND_DIR/ring.$$.1; n=0; "
    "until grep -qs started $GREYHOUND_DIR/node.log || [ $n -gt 100 ]; do n=$((n+1)); sleep 0.05; done"
)
# setpriv, unlike a bare change of the user, sets the groups too.
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


def make(*arguments: str) -> str:
    """`make -C spank`; its output."""
    return subprocess.run(["make", "-C", SPANK, *arguments], check=True, capture_output=True, text=True).stdout


def build_hook(native: Path) -> None:
    """An empty hook: the tests here need only a file that the loader takes."""
    command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", native / HOOK]
    subprocess.run(command, input="int greyhound_unused;", text=True, check=True)


def write_recorder(folder: Path) -> Path:
    records = folder / "records"
    records.mkdir(mode=0o777)
    records.chmod(0o777)
    program = folder / "python"
    program.write_text(RECORDER.replace("@RECORDS@", str(records)))
    program.chmod(0o755)
    return program


@dataclass(frozen=True)
class Record:
    """How one node process was started."""

    arguments: list[str]
    environment: dict[str, str]
    facts: dict[str, str]
    told_to_stop: bool

    def option(self, name: str) -> str:
        return self.arguments[self.arguments.index(name) + 1]


def parse_record(path: Path) -> Record:
    rows = [line.partition(" ")[::2] for line in path.read_text().splitlines()]
    arguments = [value for kind, value in rows if kind == "arg"]
    environment = dict(value.split("=", 1) for kind, value in rows if kind == "env")
    facts = {kind: value for kind, value in rows if kind not in ("arg", "env")}
    return Record(arguments, environment, facts, "stop" in facts)


def until(condition: Callable[[], object], what: str, limit_s: float = 20.0) -> None:
    """Wait for a condition; AssertionError names it if it never holds."""
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, f"never happened: {what}"
        time.sleep(0.02)


class Rig:
    """A cluster and the plugin's files."""

    def __init__(self, sandbox: Sandbox, native: Path, python: Path, records: Path) -> None:
        self.sandbox, self.native, self.python, self.records_dir = sandbox, native, python, records

    def reset(self) -> None:
        self.plugstack(f"python={self.python}")
        for path in self.records_dir.iterdir():
            path.unlink()

    def plugstack(self, *arguments: str, plugin: Path | None = None) -> None:
        """Write plugstack.conf; every srun and every step read it anew."""
        words = ["optional", str(plugin or self.native / "spank_greyhound.so"), *arguments]
        self.sandbox.layout.plugstack.write_text(" ".join(words) + "\n")

    def run(self, *command: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        variables = [f"{name}={value}" for name, value in (env or {}).items()]
        try:
            return self.sandbox.run(["env", *variables, *command], timeout_s=40)
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"{error}\n{error.stderr!r}\n{self.diagnose()}") from error

    def srun(self, *arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """srun without its own remarks about queueing."""
        return self.run("srun", "-Q", *arguments, env=env)

    def diagnose(self) -> str:
        """Jobs, nodes and processes, for the message of a test that hung."""
        commands = (["squeue", "-l"], ["sinfo", "-N", "-l"], ["ps", "-eo", "pid,ppid,stat,wchan:24,args"])
        answers = [self.sandbox.run(command, timeout_s=20).stdout for command in commands]
        answers[-1] = "\n".join(line for line in answers[-1].splitlines() if re.search("slurm|greyhound|srun", line))
        logs = [path.read_text()[-4000:] for path in sorted(self.sandbox.layout.logs.glob("slurm*.log"))]
        return "\n".join([*answers, *logs])

    def batch(self, *arguments: str, script: str) -> str:
        """Run a batch script to its end; its output."""
        output = self.records_dir / "batch.txt"
        done = self.run("sbatch", "--wait", "-o", str(output), *arguments, self.script(script))
        assert output.exists(), done.stderr
        return output.read_text()

    def script(self, body: str) -> str:
        path = self.records_dir / "script.sh"
        path.write_text(f"#!/bin/bash\n{body}\n")
        return str(path)

    def records(self) -> list[Record]:
        return [parse_record(path) for path in sorted(self.records_dir.glob("*[0-9]"))]

    def leftovers(self) -> list[str]:
        """Step directories and processes of ours, on any node of this cluster."""
        first, last = self.sandbox.state.first_job_id, self.sandbox.state.first_job_id + 10_000
        left = []
        for path in Path("/dev/shm").iterdir():
            name = re.fullmatch(r"greyhound-\d+-(\d+)\.\d+\.\d+\.n\d+", path.name)
            left += [str(path)] if name and first <= int(name[1]) < last else []
        for process in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                line = process.read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if str(self.native) in line or str(self.python) in line:
                left.append(line)
        return left

    def assert_nothing_left(self) -> None:
        until(lambda: not self.leftovers(), f"an empty /dev/shm and no process: {self.leftovers()}")


def step_path(job: int, *, step: int = 0, node: int = 0, uid: int | None = None) -> Path:
    owner = os.getuid() if uid is None else uid
    return Path(f"/dev/shm/greyhound-{owner}-{job}.{step}.0.n{node}")
