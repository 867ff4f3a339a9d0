"""The state file of a sandbox: what runs, where, and which files are its own."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from greyhound.sandbox.layout import BASE, PREFIX, Layout

VERSION = 1


@dataclass(frozen=True)
class Recorded:
    """A daemon that `up` started: pid and start time (clock ticks since boot) identify it for good."""

    name: str
    pid: int
    start_ticks: int


@dataclass
class State:
    """Contents of state.json; written before the first daemon starts and after each one."""

    name: str
    directory: str
    conf: str
    page: str
    release: str
    nodes: list[str]
    gpus_per_node: int
    first_job_id: int
    ports: dict[str, int]
    plugin: bool = False
    complete: bool = False
    processes: list[Recorded] = field(default_factory=list)
    version: int = VERSION

    def save(self, layout: Layout) -> None:
        """Replace the file atomically; readable by all (other users' sandboxes look for free ports)."""
        draft = layout.state.with_suffix(".new")
        draft.write_text(json.dumps(asdict(self), indent=1) + "\n")
        draft.chmod(0o644)
        draft.replace(layout.state)


def load(path: Path) -> State | None:
    """The state in `path`; None where there is none or it is not ours to understand (then: treat as crashed)."""
    try:
        fields = json.loads(path.read_text())
        if fields.get("version") != VERSION:
            return None
        fields["processes"] = [Recorded(**one) for one in fields["processes"]]
        return State(**fields)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def others() -> list[State]:
    """States of all sandboxes on this machine, of all users: their ports and job ids are taken."""
    found = (load(path) for path in BASE.glob(f"{PREFIX}-*/state.json"))
    return [state for state in found if state is not None]
