"""`greyhound status`: what a job is doing now, from the files that its master writes."""

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from greyhound.cli.jobs import fail, find, job_options
from greyhound.control import lines
from greyhound.control.verdict_data import identity_text

STALE_S = 6.0
RECORD_STALE_S = 45.0
WATCH_S = 1.0
NO_STATUS = 2
SUSPECTS_SHOWN, NOTES_SHOWN = 3, 2
_STYLE = {
    "tracking": "green",
    "suspect": "bold red",
    "muted": "bold yellow",
    "unmonitored": "bold yellow",
    "not_intercepted": "bold yellow",
    "ended": "dim",
}


def age_s(status: dict[str, Any]) -> float | None:
    """Seconds since the status was written, None if it doesn't say."""
    try:
        written = datetime.fromisoformat(str(status["time"]).replace("Z", "+00:00"))
    except (KeyError, ValueError):
        return None
    return (datetime.now(UTC) - written).total_seconds()


def read(job: str, record_dir: Path | None, wait: bool = False) -> dict[str, Any]:
    """The job's status with `source` (live or record), `age_s`, `stale`, `over` and `killed` (words, where no end was
    written and none will be); exits 2 where there is none."""
    run = find(job, record_dir, wait)
    status, live = run.status()
    while status is None and wait and not run.is_silent(time.time()):
        time.sleep(WATCH_S)
        run = find(job, record_dir)
        status, live = run.status()
    if status is None:
        fail(f"job {job} has no status yet; record {run.record}", NO_STATUS)
    age = age_s(status)
    limit_s = STALE_S if live else RECORD_STALE_S
    said = status["state"] == "ended" or (status["state"] == "unmonitored" and not live)
    killed = "" if said else run.last_words(time.time())
    over = said or run.is_silent(time.time())
    stale = age is not None and age > limit_s and status["state"] != "ended"
    age = age if age is None else round(age, 1)
    source = "live" if live else "record"
    return {**status, "source": source, "age_s": age, "stale": stale, "over": over, "killed": killed}


def _time_text(status: dict[str, Any]) -> str:
    now, healthy = float(status.get("iteration_s") or 0), float(status.get("healthy_s") or 0)
    if now <= 0:
        return "not known yet"
    if healthy <= 0:
        return f"{lines.seconds(now)} (healthy time not known yet)"
    return f"{lines.seconds(now)}, healthy {lines.seconds(healthy)} ({now / healthy:.2f}x)"


def _mode_text(status: dict[str, Any]) -> str:
    settings = status.get("settings") or {}
    given = [f"{key} {settings[key]}" for key in ("threshold", "freeze", "s4") if key in settings]
    ceiling = settings.get("max_mode", "on")
    given += [f"the site allows {ceiling}"] if ceiling != "on" else []
    return ", ".join([str(status.get("mode")), *given])


def _head(status: dict[str, Any]) -> Text:
    state = str(status["state"])
    text = Text(f"job {status.get('job')}.{status.get('step')}")
    if status.get("restart"):
        text.append(f" (restart {status['restart']})")
    text.append("  ")
    shown = state.replace("_", " ")
    if status.get("killed"):
        text.append(str(status["killed"]), style="bold yellow")
        text.append(f"; {shown} until then")
    else:
        text.append(shown, style=_STYLE.get(state, ""))
    if status.get("reason"):
        text.append(f": {status['reason']}")
    return text


def _facts(status: dict[str, Any]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_row("iteration", str(status.get("iteration", 0)))
    table.add_row("iteration time", _time_text(status))
    tracked, ranks = status.get("tracked", 0), status.get("ranks", 0)
    table.add_row("ranks", f"{tracked} tracked of {ranks} seen")
    table.add_row("lost so far", lines.seconds(float(status.get("lost_s") or 0)))
    table.add_row("mode", _mode_text(status))
    return table


def _verdict(status: dict[str, Any]) -> list[Text]:
    parts: list[Text] = []
    verdict = status.get("verdict") or {}
    if verdict.get("suspects") or verdict.get("episode"):
        parts.append(Text(f"verdict {verdict['text']}", style="bold red" if verdict["suspects"] else "yellow"))
        shown = verdict["suspects"][:SUSPECTS_SHOWN]
        reasons = [line for row in shown for line in [*row["reasons"], *filter(None, [identity_text(row)])]]
        notes = [f"note: {note}" for note in verdict["notes"][:NOTES_SHOWN]]
        parts += [Text(f"        {line}") for line in reasons + notes]
    if status.get("fail_stop"):
        parts.append(Text(f"stopped {status['fail_stop']['text']}", style="bold red"))
    return parts


def render(status: dict[str, Any]) -> Group:
    """The status for people."""
    parts: list[Any] = [_head(status)]
    if status.get("stale") and not status.get("over"):
        parts.append(Text(f"stale: last written {status.get('age_s')} s ago; its master may be gone", style="yellow"))
    parts.append(_facts(status))
    episodes = status.get("episodes") or []
    parts += [
        Text(("open    " if episode.get("open") else "over    ") + lines.episode_line(episode)) for episode in episodes
    ]
    if not episodes:
        parts.append(Text("no fail-slow so far"))
    parts += _verdict(status)
    parts += [Text(f"minor   {lines.minor_line(minor)}") for minor in status.get("minor") or []]
    if status.get("ab"):
        parts.append(Text(f"greyhound ab: {status['ab']['done']} of {status['ab']['windows']} windows done"))
    parts += [Text(f"note    {notice}", style="yellow") for notice in status.get("notices") or []]
    return Group(*parts)


@click.command("status")
@job_options
@click.option("--watch", is_flag=True, help="Refresh each second until the job ends or Ctrl-C.")
def command(job: str, record_dir: Path | None, as_json: bool, watch: bool) -> None:
    """Show a job's state, iteration time against the healthy one, and its fail-slows.

    JOB is a Slurm job id or local-PID; without STEP the newest step is shown. Exit code 2: nothing is known of it.
    """
    status = read(job, record_dir, watch)
    if as_json:
        while True:
            click.echo(json.dumps(status))
            if not watch or status["over"]:
                return
            time.sleep(WATCH_S)
            status = read(job, record_dir)
    console = Console(highlight=False)
    if not watch:
        console.print(render(status))
        return
    with Live(render(status), console=console, auto_refresh=False) as live:
        while not status["over"]:
            time.sleep(WATCH_S)
            status = read(job, record_dir)
            live.update(render(status), refresh=True)
