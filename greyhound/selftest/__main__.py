"""The last step of a self-test: python -m greyhound.selftest RESULTS_FOLDER [--certificates FOLDER].

Prints a line a check; writes the certificate if all passed. Exit code 0 passed, 1 failed, 2 wrong use.
"""

import sys
from datetime import UTC, datetime
from pathlib import Path

import click

from greyhound.config import from_environment
from greyhound.selftest import certificate, verdict


def certificates_folder() -> Path:
    """Where this user's certificates lie: beside the job records."""
    settings, _ = from_environment()
    return certificate.folder_below(settings.record_path)


def _write(on: list[verdict.Result], lines: list[verdict.Line], folder: Path) -> None:
    platform = certificate.Platform(**on[0]["platform"])
    findings = {
        "passed": True,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "ranks": len(on),
        "on_gpu": on[0]["on_gpu"],
        "checks": {line.name: line.text for line in lines},
    }
    try:
        click.echo(f"certificate: {certificate.write(folder, platform, findings)}")
    except OSError as error:
        click.echo(f"passed, but the certificate can't be written: {error}; give --certificates FOLDER", err=True)


@click.command()
@click.argument("results", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--certificates", type=click.Path(path_type=Path), help="Folder of the certificates.")
def main(results: Path, certificates: Path | None) -> None:
    """Judge the results of both runs in RESULTS."""
    on, off = verdict.load(results, "on"), verdict.load(results, "off")
    lines = verdict.judge(on, off)
    for line in lines:
        click.echo(f"{'ok  ' if line.passed else 'FAIL'} {line.name}: {line.text}")
    if not verdict.passed(lines):
        click.echo("FAILED: no certificate; `observe` may still be used, freeze and topology changes stay off")
        sys.exit(1)
    _write(on, lines, certificates or certificates_folder())


if __name__ == "__main__":
    main()
