"""The command line that node process and master share (docs/interfaces.md 4)."""

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from greyhound.config import Settings, apply, parse_option
from greyhound.control.names import StepName, bus_prefix

TOKEN_VARIABLE = "GREYHOUND_TOKEN"


@dataclass(frozen=True)
class NodeArguments:
    """What a node process is told."""

    step_dir: Path
    node_index: int
    node_count: int
    node_list: str
    name: StepName
    settings: Settings
    head_address: str | None
    tasks: int

    @property
    def prefix(self) -> str:
        """Of the Redis keys."""
        return bus_prefix(os.getuid(), self.name)

    @property
    def in_slurm(self) -> bool:
        """False under `greyhound launch`."""
        return not self.name.job.startswith("local-")

    def argv(self, head_address: str) -> list[str]:
        """The same as a command line, for the master."""
        settings = self.settings
        arguments = ["--step-dir", str(self.step_dir), "--node-index", str(self.node_index)]
        arguments += ["--node-count", str(self.node_count), "--node-list", self.node_list]
        arguments += ["--job", self.name.job, "--step", self.name.step, "--restart", str(self.name.restart)]
        arguments += ["--mode", settings.mode, "--option", f"threshold={settings.threshold}"]
        for key in ("warmup", "freeze", "s4", "max_mode", "mute_file"):
            arguments += ["--option", f"{key}={getattr(settings, key)}"]
        arguments += ["--record-dir", settings.record_dir]
        arguments += ["--redis-server", settings.redis_server, "--tasks", str(self.tasks)]
        return [*arguments, "--head-address", head_address]


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=prog, allow_abbrev=False)
    parser.add_argument("--step-dir", type=Path, required=True)
    parser.add_argument("--node-index", type=int, required=True)
    parser.add_argument("--node-count", type=int, required=True)
    parser.add_argument("--node-list", required=True)
    parser.add_argument("--job", required=True)
    parser.add_argument("--step", required=True)
    parser.add_argument("--restart", type=int, default=0)
    parser.add_argument("--mode", choices=("on", "observe"), required=True)
    parser.add_argument("--option", action="append", default=[])
    parser.add_argument("--record-dir")
    parser.add_argument("--redis-server")
    parser.add_argument("--head-address")
    parser.add_argument("--tasks", type=int, default=0)
    return parser


def parse(prog: str, argv: Sequence[str] | None = None) -> NodeArguments:
    """Read the command line; a bad one ends the process with code 2 and a usage line, as argparse does."""
    parser = _parser(prog)
    given = parser.parse_args(argv)
    try:
        values = dict(parse_option(text, site=True) for text in given.option)
    except ValueError as error:
        parser.error(str(error))
    settings = apply(Settings(mode=given.mode), values)
    if given.record_dir:
        settings = apply(settings, {"record_dir": given.record_dir})
    if given.redis_server:
        settings = apply(settings, {"redis_server": given.redis_server})
    return NodeArguments(
        step_dir=given.step_dir,
        node_index=given.node_index,
        node_count=given.node_count,
        node_list=given.node_list,
        name=StepName(given.job, given.step, given.restart),
        settings=settings,
        head_address=given.head_address or None,
        tasks=given.tasks,
    )


def take_token() -> str:
    """The token out of this process's environment, which no child then inherits by accident."""
    return os.environ.pop(TOKEN_VARIABLE, "")
