"""`greyhound detect`: recorded iteration times through the detector that watches live jobs."""

import io
import json
import math
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from greyhound.cli.detect_table import show
from greyhound.detect.dumped import feed_dump
from greyhound.detect.methods import METHODS
from greyhound.detect.offline import Analysis, OfflineRun
from greyhound.trace import dump, layout
from greyhound.trace.series_file import SeriesError, SeriesReader

SOME_UNREADABLE = 1
NO_DATA = 3
_MOST_PANELS = 24
_ROWS_A_STEP = 2048
_LONG_BYTES = 500_000  # some 30,000 rows, a second
_RING_MAGIC = layout.GH_MAGIC.to_bytes(8, "little")


class NoDataError(ValueError):
    """The file is fine, but holds no iteration."""


@dataclass
class Trail:
    """What the plot shows of a series, kept only if there is to be one."""

    iterations: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    healthy_s: list[float | None] = field(default_factory=list)


@dataclass
class Done:
    """One file's answer: its analysis, or the error in its place."""

    file: str
    analysis: Analysis | None = None
    error: str = ""
    empty: bool = False
    skipped: int = 0
    warnings: list[str] = field(default_factory=list)
    trail: Trail | None = None

    def as_json(self) -> dict[str, Any]:
        """The object of docs/interfaces.md 8."""
        row: dict[str, Any] = {"file": self.file}
        row |= {"error": self.error} if self.analysis is None else self.analysis.as_json()
        row |= {"skipped": self.skipped} if self.skipped else {}
        return row | ({"warnings": self.warnings} if self.warnings else {})


@dataclass(frozen=True)
class _Options:
    method: str
    threshold: float
    warmup: int
    keep_trail: bool

    def fresh_run(self) -> OfflineRun:
        return OfflineRun(METHODS[self.method](self.threshold, self.warmup))


class _Threshold(click.FloatRange):
    """A range that NaN isn't in (it is neither below nor above)."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        share = super().convert(value, param, ctx)
        return self.fail(f"{value!r} is not a number", param, ctx) if math.isnan(share) else share


@click.command("detect")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--method", type=click.Choice(list(METHODS)), default="full", help="full: ours; the others: the paper's.")
@click.option("--threshold", type=_Threshold(0.02, 1.0), default=0.10, help="Slow-down that counts (0.1: 10 %).")
@click.option("--warmup", type=click.IntRange(5, 1000), default=10, help="Iterations before anything is judged.")
@click.option("--json", "as_json", is_flag=True, help="One object a line.")
@click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), help="Draw all files into this image.")
def command(
    files: tuple[str, ...], method: str, threshold: float, warmup: int, as_json: bool, plot: Path | None
) -> None:
    """Find fail-slows in recorded iteration times, strictly in order, as if live.

    FILE is a table with the columns iteration,seconds (.csv or .csv.gz; - for standard input), or a ring recorded by
    `greyhound trace`. Exit code 0, with or without findings; 1: a file couldn't be read, the others are done;
    3: all could be read, but none had data.
    """
    options = _Options(method, threshold, warmup, keep_trail=plot is not None)
    if plot is not None:
        _check_plot(plot, len(files))
    console = Console(highlight=False)
    all_done: list[Done] = []
    with _progress(files) as progress:
        for name in files:
            done = _analyse(name, options, progress)
            _tell(done, as_json, console)
            all_done.append(done)
    if plot is not None:
        _draw(all_done, plot)
    _exit(all_done)


def _exit(all_done: list[Done]) -> None:
    if any(done.error and not done.empty for done in all_done):
        raise click.exceptions.Exit(SOME_UNREADABLE)
    if not any(done.analysis for done in all_done):
        raise click.exceptions.Exit(NO_DATA)


def _analyse(name: str, options: _Options, progress: Progress | None) -> Done:
    """Everything that may be wrong with a file ends here, as the answer for that file."""
    done = Done(click.format_filename(name), trail=Trail() if options.keep_trail else None)
    try:
        with _open(name) as stream:
            done.analysis = _run(stream, done, options, progress)
    except NoDataError:
        done.error, done.empty = "no data", True
    except (SeriesError, dump.DumpError) as error:
        done.error = str(error)
    except OSError as error:
        done.error = error.strerror or str(error)
    return done


@contextmanager
def _open(name: str) -> Iterator[io.BufferedReader]:
    if name == "-":
        with open(0, "rb", closefd=False) as stream:
            yield stream
        return
    if Path(name).is_dir():
        raise SeriesError(f"a directory; name the files in it: {click.format_filename(name).rstrip('/')}/*.csv")
    with Path(name).open("rb") as stream:
        yield stream


def _run(stream: io.BufferedReader, done: Done, options: _Options, progress: Progress | None) -> Analysis:
    start = stream.peek(8)[:8]
    if start == _RING_MAGIC:
        raise SeriesError("a ring as it is in memory; record it first: greyhound trace dump RING -o FILE")
    run = options.fresh_run()
    if start.startswith(dump.MAGIC):
        archive = stream if stream.seekable() else io.BytesIO(stream.read())
        feed_dump(_Kept(run, done.trail), dump.read_dump(archive))
    else:
        _feed_series(SeriesReader(stream), _Kept(run, done.trail), done, _Position(stream, progress))
    if run.n == 0:
        raise NoDataError
    return run.result()


class _Kept:
    """A run whose series is kept for the plot."""

    def __init__(self, run: OfflineRun, trail: Trail | None) -> None:
        self._run = run
        self._trail = trail

    def feed(self, iteration: int, seconds: float) -> None:
        self._run.feed(iteration, seconds)
        if self._trail is not None:
            self._trail.iterations.append(iteration)
            self._trail.seconds.append(seconds)
            self._trail.healthy_s.append(self._run.healthy_s)

    def pattern_changed(self, iteration: int) -> None:
        self._run.pattern_changed(iteration)


class _Position:
    """How far a file has been read, for the bar."""

    def __init__(self, stream: io.BufferedReader, progress: Progress | None) -> None:
        self._stream, self._progress = stream, progress if stream.seekable() else None
        self._at = 0

    def step(self) -> None:
        if self._progress is not None and self._progress.task_ids:
            at = self._stream.tell()
            self._progress.advance(self._progress.task_ids[0], at - self._at)
            self._at = at


def _feed_series(reader: SeriesReader, kept: _Kept, done: Done, position: _Position) -> None:
    try:
        for number, (iteration, seconds) in enumerate(reader):
            kept.feed(iteration, seconds)
            if number % _ROWS_A_STEP == 0:
                position.step()
        position.step()
    finally:
        done.skipped = reader.skipped.count
        done.warnings = [reader.skipped.sentence(), *reader.warnings] if done.skipped else list(reader.warnings)


def _tell(done: Done, as_json: bool, console: Console) -> None:
    """Warnings to stderr, the answer to stdout at once: a reader at the other end of a pipe waits for it."""
    for warning in done.warnings:
        click.echo(f"greyhound: {done.file}: {warning}", err=True)
    if as_json:
        click.echo(json.dumps(done.as_json(), allow_nan=False))
    elif done.analysis is None:
        click.echo(f"greyhound: {done.file}: {done.error}", err=True)
    else:
        show(console, done.file, done.analysis)


def _size_bytes(name: str) -> int:
    """0 for what is no file; why not is told when its turn comes."""
    try:
        status = Path(name).stat()
    except OSError:
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


@contextmanager
def _progress(files: tuple[str, ...]) -> Iterator[Progress | None]:
    """A bar on stderr if that is a terminal; on long input only; it goes when done."""
    total_bytes = sum(_size_bytes(name) for name in files)
    console = Console(stderr=True)
    if not console.is_terminal or total_bytes < _LONG_BYTES:
        yield None
        return
    columns = (TextColumn("detect"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"), TimeRemainingColumn())
    # What goes to the same terminal is written above the bar.
    with Progress(*columns, console=console, transient=True, redirect_stdout=sys.stdout.isatty()) as progress:
        progress.add_task("detect", total=total_bytes)
        yield progress


def _check_plot(plot: Path, files: int) -> None:
    """Refuse before the work what would fail after it."""
    from greyhound.cli import detect_plot

    if files > _MOST_PANELS:
        raise click.UsageError(f"--plot draws at most {_MOST_PANELS} files into one image, {files} were named")
    if trouble := detect_plot.trouble(plot):
        raise click.ClickException(trouble)


def _draw(all_done: list[Done], plot: Path) -> None:
    from greyhound.cli import detect_plot

    panels = [(done.file, done.trail, done.analysis) for done in all_done if done.analysis and done.trail]
    if not panels:
        return
    try:
        detect_plot.draw(panels, plot)
    except OSError as error:
        raise click.ClickException(f"{click.format_filename(plot)}: can't be written: {error.strerror}") from error
