"""`greyhound trace export`: recorded calls of all ranks as a timeline for Perfetto or chrome://tracing."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import click

from greyhound import __version__
from greyhound.cli.jobs import fail, find
from greyhound.cli.trace_survey import NodeClock, Surveyed, calls_a_rank, check, node_clocks, roles, survey
from greyhound.control.events import utc
from greyhound.control.status import FILE, read_status
from greyhound.control.trace_node import SUFFIX
from greyhound.trace import layout
from greyhound.trace.dump import Dump, DumpError, read_dump
from greyhound.trace.timeline import TRACKS_A_RANK, RankTimeline, Spot, comm_words, process_events
from greyhound.trace.timeline_file import TimelineFile, is_compressed

SOME_UNREADABLE = 1
NOTHING = 3
_RING_MAGIC = layout.GH_MAGIC.to_bytes(8, "little")


@dataclass
class _Inputs:
    """Files to export, how the result is called, and names of nodes by index."""

    files: list[Path]
    name: str
    nodes: dict[int, str] = field(default_factory=dict)


# -- which files ----------------------------------------------------------------------------------------------------


def _inputs(given: Sequence[str], record_dir: Path | None, run: str | None) -> _Inputs:
    paths = [Path(text) for text in given]
    if len(given) == 1 and not paths[0].exists() and os.sep not in given[0] and SUFFIX not in given[0]:
        return _of_job(given[0], record_dir, run)
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            fail(f"{path}: no such file, and no job either", 2)
        found += _newest(_dumps(path), str(path), run) if path.is_dir() else [path]
    if not found:
        fail(f"{', '.join(given)}: no recorded calls there (*{SUFFIX})", NOTHING)
    return _Inputs(found, "greyhound", _node_names({path.parent for path in found}))


def _of_job(job: str, record_dir: Path | None, run: str | None) -> _Inputs:
    record = find(job, record_dir).record
    files = _dumps(record) if record is not None else []
    if not files:
        where = record or "its record folder, which isn't there"
        fail(
            f"job {job} has no recorded calls in {where}; while it runs: greyhound trace record {job} "
            "(files that its option -o moved are exported by their names)",
            NOTHING,
        )
    assert record is not None
    return _Inputs(_newest(files, f"job {job}", run), f"greyhound-{job}", _node_names({record}))


def _dumps(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.name.endswith(SUFFIX) and path.is_file())
    except OSError as error:
        return fail(f"{folder}: can't be read: {error.strerror}", 2)


def _newest(files: list[Path], where: str, run: str | None) -> list[Path]:
    """The files of one recording (`trace.RUN.node0...`): of that asked for, else of the newest."""
    runs: dict[str, list[Path]] = {}
    for path in files:
        parts = path.name.split(".")
        runs.setdefault(parts[1] if parts[0] == "trace" and len(parts) > 2 else "", []).append(path)
    if run is not None:
        if run[:8] not in runs:
            fail(f"{where} has no recording {run}; it has {', '.join(runs) or 'none'}", NOTHING)
        return runs[run[:8]]
    newest = max(runs, key=lambda name: max(path.stat().st_mtime for path in runs[name]), default="")
    if len(runs) > 1:
        others = ", ".join(name for name in runs if name != newest)
        click.echo(f"greyhound: {where} has {len(runs)} recordings; the newest is {newest} (--run: {others})", err=True)
    return runs.get(newest, [])


def _node_names(folders: set[Path]) -> dict[int, str]:
    """As the job's status beside the recordings has them; only where there is no doubt."""
    found = [status for status in (read_status(folder / FILE) for folder in folders) if status]
    if len(found) != 1 or not isinstance(found[0].get("nodes"), list):
        return {}
    rows = [row for row in found[0]["nodes"] if isinstance(row, dict)]
    return {row["index"]: str(row["name"]) for row in rows if isinstance(row.get("index"), int) and row.get("name")}


# -- reading --------------------------------------------------------------------------------------------------------


class _Files:
    """Reads the dumps, once to look through them and once to write; those that can't be are told, once."""

    def __init__(self) -> None:
        self.bad = 0

    def read(self, path: Path) -> Dump | None:
        """A checked dump with calls in it, else None."""
        try:
            dump = read_dump(path)
            check(dump)
        except DumpError as error:
            self._refuse(path, _hint(path) or str(error))
            return None
        except OSError as error:
            self._refuse(path, f"can't be read: {error.strerror or error}")
            return None
        if len(dump.records) == 0:
            click.echo(f"greyhound: {click.format_filename(path)}: no call in it", err=True)
            return None
        return dump

    def _refuse(self, path: Path, why: str) -> None:
        self.bad += 1
        click.echo(f"greyhound: {click.format_filename(path)}: {why}", err=True)

    def survey(self, paths: Sequence[Path]) -> list[Surveyed]:
        """All that can be read, sorted by node and rank."""
        found: list[Surveyed] = []
        clocks: dict[str, int] = {}
        for path in paths:
            dump = self.read(path)
            if dump is not None:
                clock = clocks.setdefault(str(dump.facts["boot_id"]), len(clocks))
                found.append(survey(path, dump, clock, calls_a_rank(len(paths))))
        return sorted(
            found, key=lambda row: (row.facts["node_index"], row.facts["world_rank"], row.process, row.first_ns)
        )


def _hint(path: Path) -> str:
    try:
        with path.open("rb") as file:
            if file.read(8) == _RING_MAGIC:
                return "a live ring: `greyhound trace dump` makes a file of it that can be exported"
    except OSError:
        pass
    return ""


# -- writing --------------------------------------------------------------------------------------------------------


@dataclass
class _Timeline:
    """What all ranks' events need."""

    rows: Sequence[Surveyed]
    clocks: Mapping[str, NodeClock]
    nodes: Mapping[int, str]
    base_ns: int

    def node(self, row: Surveyed) -> tuple[str, str]:
        """Key and name of a rank's node."""
        index = int(row.facts["node_index"])
        return f"{row.clock}.{index}", self.nodes.get(index, f"node {index}")


def _label(row: Surveyed) -> str:
    rank = row.facts["world_rank"]
    return f"rank {rank}" if rank >= 0 else f"process {row.facts['pid']}"


def _events(timeline: _Timeline, read: Callable[[Path], Dump | None]) -> Iterator[str]:
    role_of = roles(timeline.rows)
    pids: dict[str, int] = {}
    ranks: dict[tuple[Any, ...], tuple[RankTimeline, int]] = {}
    for row in timeline.rows:
        key, name = timeline.node(row)
        if key not in pids:
            pids[key] = len(pids) + 1
            labels = [f"clock: {timeline.clocks[row.clock].words}"] if len(timeline.clocks) > 1 else []
            yield from process_events(pids[key], name, labels)
        dump = read(row.path)
        if dump is None:
            continue
        comms = comm_words(dump.comms, role_of)
        shift_ns = timeline.clocks[row.clock].shift_ns - timeline.base_ns
        spot = Spot(pids[key], len(ranks) * TRACKS_A_RANK + 1, _label(row), shift_ns)
        records, last = dump.records, int(dump.records["commit"].max())
        if row.process not in ranks:
            ranks[row.process] = RankTimeline(spot, comms), last
        else:  # recorded twice
            records = records[records["commit"] > ranks[row.process][1]]
            ranks[row.process] = ranks[row.process][0], max(last, ranks[row.process][1])
        yield from _of_rank(ranks[row.process][0], row, dump, records)


def _of_rank(rank: RankTimeline, row: Surveyed, dump: Dump, records: Any) -> Iterator[str]:
    yield from rank.iterations(row.iterations)
    yield from rank.calls(records)
    lost = dump.gaps[(dump.gaps >= 0) & (dump.gaps < len(dump.records))]
    yield from rank.gaps(dump.records["t_ns"][lost].tolist())


def _facts(timeline: _Timeline) -> dict[str, Any]:
    """What is to be known of the whole file."""
    nodes = {}
    for row in timeline.rows:
        key, name = timeline.node(row)
        clock = timeline.clocks[row.clock]
        shown = {"offset_s": clock.offset_s, "uncertainty_s": clock.uncertainty_s, "applied": clock.applied}
        nodes[key] = {"node": name, "clock": clock.words} | shown
    return {
        "greyhound": __version__,
        "begin": utc(timeline.base_ns / 1e9),
        "ranks": len({row.process for row in timeline.rows}),
        "calls": sum(row.calls for row in timeline.rows),
        "clocks": list(nodes.values()),
    }


def _write(stream: BinaryIO, compress: bool, timeline: _Timeline, read: Callable[[Path], Dump | None]) -> None:
    file = TimelineFile(stream, compress)
    for event in _events(timeline, read):
        file.add(event)
    file.close(_facts(timeline))


def _write_to(output: Path, timeline: _Timeline, read: Callable[[Path], Dump | None]) -> None:
    """The whole file or none."""
    part = output.with_name(f".{output.name}.{os.getpid()}.part")
    try:
        try:
            with part.open("wb") as stream:
                _write(stream, is_compressed(output), timeline, read)
            part.replace(output)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        why = error.strerror or error
        raise click.ClickException(f"{click.format_filename(output)}: can't be written: {why}") from error


@click.command("export")
@click.argument("inputs", metavar="JOB|FILE...", nargs=-1, required=True)
@click.option(
    "-o", "output", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    help="Where to; gzipped if the name ends with .gz; - is standard output. [default: greyhound-JOB.trace.json.gz]",
)  # fmt: skip
@click.option("--run", metavar="RUN", help="Another of the job's recordings than the newest.")
@click.option(
    "--record-dir", type=click.Path(path_type=Path, file_okay=False), help="Look here for records, nowhere else."
)
def command(inputs: tuple[str, ...], output: Path | None, run: str | None, record_dir: Path | None) -> None:
    """Make a timeline of all ranks from what `greyhound trace record` wrote, for https://ui.perfetto.dev.

    JOB takes the newest recording in the job's record folder; FILEs may be folders, too. Each node is a process; a rank
    has a track of its iterations, one of its host's calls and, where calls were timed on the GPU, one of these. Exit
    code 1: a file couldn't be read, the others are in; 2: usage, or no such job; 3: all were read, but hold no call.
    """
    wanted = _inputs(inputs, record_dir, run)
    files = _Files()
    rows = files.survey(wanted.files)
    if not rows:
        fail("no recorded call in any of the files", SOME_UNREADABLE if files.bad else NOTHING)
    clocks = node_clocks(rows)
    timeline = _Timeline(rows, clocks, wanted.nodes, min(row.first_ns + clocks[row.clock].shift_ns for row in rows))
    if output == Path("-"):
        _write(sys.stdout.buffer, False, timeline, files.read)
    else:
        output = output or Path(f"{wanted.name}.trace.json.gz")
        _write_to(output, timeline, files.read)
        calls = sum(row.calls for row in rows)
        ranks = len({row.process for row in rows})
        text = f"{calls:,} calls of {ranks} rank{'s' * (ranks != 1)}; open it in https://ui.perfetto.dev"
        click.echo(f"{click.format_filename(output)}: {text}")
    for row in {row.clock: row for row in rows}.values():
        if len(clocks) > 1:
            click.echo(f"greyhound: {timeline.node(row)[1]}: {clocks[row.clock].words}", err=True)
    if files.bad:
        raise click.exceptions.Exit(SOME_UNREADABLE)
