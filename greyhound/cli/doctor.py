"""`greyhound doctor`: is this host fit for watched jobs? Each line with its mend."""

import json
import sys

import click
from rich.console import Console
from rich.text import Text

from greyhound.doctor.checks import examine
from greyhound.doctor.finding import Finding, Level, worst

_STYLE = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "bold red"}


def _show(console: Console, finding: Finding) -> None:
    text = Text(f"{finding.level.name.lower():<5}", style=_STYLE[finding.level])
    text.append(f"{finding.name}: {finding.text}", style="")
    if finding.mend:
        text.append(f"\n     -> {finding.mend}", style="")
    console.print(text, soft_wrap=True)


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="For programs: one object with all findings.")
@click.option("--no-slurm", is_flag=True, help="Only what `greyhound launch` needs.")
def command(as_json: bool, no_slurm: bool) -> None:
    """Check this host: plugin and release, plugstack line, option, hook, Redis, shared memory, records, GPUs, clock.

    Run it on a submit host and on a node. Exit code 0 all well, 1 warnings, 2 something is broken.
    """
    findings = []
    console = Console()
    for finding in examine(with_slurm=not no_slurm):
        findings.append(finding)
        if not as_json:
            _show(console, finding)
    level = worst(findings)
    if as_json:
        rows = [{**vars(finding), "level": finding.level.name.lower()} for finding in findings]
        click.echo(json.dumps({"v": 1, "level": level.name.lower(), "findings": rows}))
    sys.exit(int(level))
