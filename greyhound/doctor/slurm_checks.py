"""Checks of what belongs to Slurm: the plugin and its release, its line, the option, clocks, accounting."""

import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path

from greyhound.doctor.finding import Finding, Level
from greyhound.slurm.choose import why_no_pyslurm
from greyhound.slurm.client import CommandClient, SlurmError, find_program, run_command
from greyhound.slurm.plugstack import Line, read

TIMEOUT_S = 10.0
CLOCK_WARN_S, CLOCK_FAIL_S = 3.0, 60.0
_VERSION_PROGRAM = (
    "import ctypes, os, sys; "
    "print(ctypes.c_uint32.in_dll(ctypes.CDLL(sys.argv[1], os.RTLD_LAZY), 'plugin_version').value)"
)
STUB_WORDS = b"disabled by the site: accepted and ignored"  # spank/stub.c
DEFAULT_PLUGSTACK = Path("/etc/slurm/plugstack.conf")


def run(command: list[str], environment: Mapping[str, str]) -> str:
    """A command's standard output; SlurmError if it fails or takes longer than TIMEOUT_S."""
    return run_command(command, environment, TIMEOUT_S)


class SlurmHost:
    """This host's Slurm, asked once for its configuration."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self.environment = dict(os.environ if environment is None else environment)
        self._config: dict[str, str] | None = None
        self.answered_s = 0.0

    def command(self, program: str, *arguments: str) -> str:
        """What one of Slurm's commands prints; SlurmError."""
        return run([find_program(program, self.environment), *arguments], self.environment)

    def config(self) -> dict[str, str]:
        """`scontrol show config`; SlurmError if slurmctld can't be asked."""
        if self._config is None:
            text = self.command("scontrol", "show", "config")
            self.answered_s = time.time()
            pairs = (line.partition("=") for line in text.splitlines())
            self._config = {key.strip(): value.strip() for key, _, value in pairs}
            as_of = re.search(r"Configuration data as of (\S+)", text)
            self._config["as_of"] = as_of[1] if as_of else ""
        return self._config

    def plugstack(self) -> Path:
        """Where plugstack.conf lies."""
        named = self.config().get("PlugStackConfig", "")
        return Path(named) if named.startswith("/") else DEFAULT_PLUGSTACK

    def lines(self) -> list[Line]:
        """Our lines in plugstack.conf; SlurmError if it can't be read."""
        path = self.plugstack()
        try:
            return list(read(path))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise SlurmError(f"{path} can't be read: {error.strerror}") from None


def check_controller(host: SlurmHost) -> Iterator[Finding]:
    """Whether slurmctld answers."""
    try:
        version = host.config().get("SLURM_VERSION", "?")
    except SlurmError as error:
        yield Finding("slurmctld", Level.FAIL, str(error), "run this where Slurm's commands work; is slurmctld up?")
        return
    yield Finding("slurmctld", Level.OK, f"answers, Slurm {version}")


def check_line(host: SlurmHost) -> Iterator[Finding]:
    """Our line in plugstack.conf: there, once, optional, its plugin in place."""
    name, lines, path = "plugstack line", host.lines(), host.plugstack()
    example = f"optional PREFIX/lib/greyhound/{Path('spank_greyhound.so')} prefix=PREFIX max_mode=observe"
    if not lines:
        yield Finding(name, Level.FAIL, f"none in {path}", f"add: {example}")
        return
    if len(lines) > 1:
        places = ", ".join(f"{line.file}:{line.number}" for line in lines)
        yield Finding(name, Level.WARN, f"{len(lines)} lines ({places}); the first works", "remove the others")
    line = lines[0]
    where = f"{line.file}:{line.number}"
    if line.kind != "optional":
        text = f"{where}: it is {line.kind!r}: a missing or mismatched plugin would refuse every job"
        yield Finding(name, Level.FAIL, text, "write `optional` in its place")
    elif not line.plugin.is_file():
        yield Finding(name, Level.FAIL, f"{where}: {line.plugin} is missing", "make -C spank install PREFIX=...")
    elif STUB_WORDS in line.plugin.read_bytes():
        text = f"{where}: {line.plugin} is the stub of an uninstall: no job is watched"
        yield Finding(name, Level.WARN, text, "greyhound slurm install --prefix ...")
    else:
        yield Finding(name, Level.OK, f"{where}: {line.plugin}")


def check_python(host: SlurmHost) -> Iterator[Finding]:
    """Whether the python of our line can run the node process."""
    for line in host.lines()[:1]:
        python = line.arguments.get("python") or f"{line.arguments.get('prefix', '')}/bin/python"
        try:
            run([python, "-I", "-c", "import greyhound.control.node"], {"PATH": os.defpath})
            yield Finding("python", Level.OK, f"{python} has Greyhound")
        except SlurmError as error:
            mend = "install Greyhound there: PREFIX/bin/pip install 'greyhound[control]'"
            yield Finding("python", Level.FAIL, f"every node would be unmonitored: {error}", mend)


def plugin_release(plugin: Path) -> str:
    """The Slurm release (22.05) that a plugin was built against; SlurmError if it can't be told."""
    number = int(run([sys.executable, "-I", "-c", _VERSION_PROGRAM, str(plugin)], os.environ))
    return f"{number >> 16}.{number >> 8 & 255:02}"


def check_release(host: SlurmHost) -> Iterator[Finding]:
    """Slurm loads a plugin of its own major.minor only (cases: "incompatible plugin version")."""
    for line in host.lines()[:1]:
        if not line.plugin.is_file():
            return
        try:
            built = plugin_release(line.plugin)
        except SlurmError as error:
            yield Finding("plugin release", Level.FAIL, f"{line.plugin} doesn't load: {error}", "build it again here")
            return
        running = host.config().get("SLURM_VERSION", "")
        if running.startswith(f"{built}."):
            yield Finding("plugin release", Level.OK, f"built for {built}, running {running}")
        else:
            text = f"built for Slurm {built}, but {running} is running: every job runs unmonitored"
            yield Finding(
                "plugin release", Level.FAIL, text, "make -C spank install PREFIX=... on a host of that release"
            )


def check_option(host: SlurmHost) -> Iterator[Finding]:
    """Whether the commands that users type know --greyhound."""
    for program in ("srun", "sbatch", "salloc"):
        try:
            known = "--greyhound" in host.command(program, "--help")
        except SlurmError as error:
            yield Finding(f"{program} option", Level.WARN, str(error), "install slurm-client here")
            continue
        text = "--greyhound is offered" if known else "--greyhound is not known"
        mend = "" if known else "mend the lines above first; the plugin must be readable on submit hosts too"
        yield Finding(f"{program} option", Level.OK if known else Level.FAIL, text, mend)


def check_client(host: SlurmHost) -> Iterator[Finding]:
    """How the commands that people type ask Slurm; a pyslurm that doesn't fit is passed over, and here is why."""
    why = why_no_pyslurm(CommandClient(environment=host.environment))
    yield Finding("slurm client", Level.OK, f"Slurm's commands ({why})" if why else "pyslurm")


def check_clock(host: SlurmHost) -> Iterator[Finding]:
    """This host's clock against slurmctld's, to a second."""
    try:
        theirs_s = datetime.fromisoformat(host.config()["as_of"]).timestamp()
    except ValueError:
        yield Finding("clock", Level.WARN, "slurmctld does not tell its time", "compare the clocks by hand (chronyc)")
        return
    offset_s = host.answered_s - theirs_s
    # The answer is cut to seconds: between 0 and 1 s late with clocks that agree.
    away_s = max(0.0, -offset_s, offset_s - 1.0)
    level = Level.OK if away_s < CLOCK_WARN_S else Level.WARN if away_s < CLOCK_FAIL_S else Level.FAIL
    mend = "" if level is Level.OK else "synchronise the clocks (chrony, ntpd)"
    yield Finding("clock", level, f"{away_s:.0f} s away from slurmctld's", mend)


def check_accounting(host: SlurmHost) -> Iterator[Finding]:
    """sacct, and whether comments reach it."""
    try:
        host.command("sacct", "--noheader", "--allocations", "--starttime=now-1hour")
        yield Finding("sacct", Level.OK, "answers")
    except SlurmError as error:
        yield Finding("sacct", Level.WARN, str(error), "`greyhound report` needs slurmdbd; status and events don't")
        return
    flags = host.config().get("AccountingStoreFlags", "")
    if "job_comment" not in flags:
        mend = "add job_comment to AccountingStoreFlags in slurm.conf"
        yield Finding("job comments", Level.WARN, "not stored: no summary in sacct", mend)
