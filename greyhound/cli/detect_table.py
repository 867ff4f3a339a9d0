"""What `greyhound detect` shows to people."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from greyhound.detect.offline import Analysis


def show(console: Console, file: str, analysis: Analysis) -> None:
    """One file: a line, and a table if something was found."""
    heading = Text(file, style="bold")
    heading.append(f"  {analysis.n} iterations, {_healthy(analysis)}", style="not bold")
    rows = _rows(analysis)
    if not rows:
        heading.append(", nothing found", style="not bold green")
    console.print(heading, soft_wrap=True)
    if rows:
        console.print(_table(rows))


def _healthy(analysis: Analysis) -> str:
    if analysis.healthy_s is None:
        return "too few to know a healthy time"
    return f"healthy {analysis.healthy_s:.4g} s"


def _table(rows: list[tuple[int, list[str], str]]) -> Table:
    table = Table(box=None, pad_edge=True)
    table.add_column("found", no_wrap=True)
    for name in ("onset", "reported", "end", "times healthy"):
        table.add_column(name, justify="right", no_wrap=True)
    for _, cells, style in sorted(rows, key=lambda row: row[0]):
        table.add_row(*cells, style=style)
    return table


def _rows(analysis: Analysis) -> list[tuple[int, list[str], str]]:
    """(reported, cells, style) of everything found."""
    rows = []
    for episode in analysis.episodes:
        end = "open" if episode.end is None else str(episode.end)
        cells = ["fail-slow", str(episode.onset), str(episode.reported), end, f"{episode.slowdown:.3g}"]
        rows.append((episode.reported, cells, "red"))
    for minor in analysis.minor:
        cells = ["minor", str(minor.onset), str(minor.reported), "", f"{minor.level:.3g}"]
        rows.append((minor.reported, cells, "yellow"))
    for regime in analysis.regimes:
        cells = ["other work", str(regime.onset), str(regime.reported), "", ""]
        rows.append((regime.reported, cells, "cyan"))
    return rows
