"""`greyhound slurm requeue`: what the batch script runs when the watch asks for other nodes (S4)."""

import json
import signal
import time
from pathlib import Path

import click

from greyhound.control import files
from greyhound.slurm import requeue
from greyhound.slurm.client import CommandClient, SlurmError
from greyhound.slurm.nodelist import NodeListError

NOT_NOW = 1


def _earlier(path: Path) -> dict[str, float]:
    """Our own exclusions of the runs before; an unreadable file is as good as none."""
    try:
        raw = json.loads(path.read_text())
        return {str(node): float(since) for node, since in raw.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _carry_out(client: CommandClient, request: requeue.Request, chosen: requeue.Plan, path: Path, kept: Path) -> None:
    """Nothing may be left to do once the job is requeued, since we may be killed then; what failed is put back."""
    before = _earlier(kept)
    files.write_atomically(kept, json.dumps(chosen.excluded) + "\n")
    path.unlink(missing_ok=True)
    try:
        requeue.carry_out(client, request.job, chosen, lambda text: click.echo(f"greyhound: {text}", err=True))
    except SlurmError:
        files.write_atomically(kept, json.dumps(before) + "\n")
        files.write_atomically(path, request.to_text())
        raise


@click.command("requeue")
@click.option("--request", "path", type=click.Path(path_type=Path, dir_okay=False), required=True, metavar="FILE")
@click.option("--max-restarts", type=click.IntRange(0), default=requeue.Limits.restarts, show_default=True)
@click.option(
    "--max-share",
    type=click.FloatRange(0, 1),
    default=requeue.Limits.share,
    show_default=True,
    help="Of the partition's usable nodes that may be excluded; one always may.",
)
@click.option("--dry-run", is_flag=True, help="Tell what would be done, do nothing.")
def command(path: Path, max_restarts: int, max_share: float, dry_run: bool) -> None:
    """Send this batch job back to the queue without the nodes that the request in FILE names.

    For the batch script, after the checkpoint is complete. Exit code 0: requeued (the script is ended by Slurm soon);
    1: it can't be now, the reason is told and the job goes on; 2: usage.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # requeue sends it to us and to scontrol, which inherits this
    client = CommandClient()
    try:
        request = requeue.parse(path.read_text(errors="replace"))
        kept = path.parent / f"excluded.{request.job}.json"
        facts, usable = requeue.gather(client, request.job)
        limits = requeue.Limits(max_restarts, max_share)
        chosen = requeue.plan(request, facts, usable, _earlier(kept), time.time(), limits)
        click.echo(f"greyhound: requeue of job {request.job} without {chosen.node_list}: {request.reason}", err=True)
        if dry_run:
            return
        _carry_out(client, request, chosen, path, kept)
    except (requeue.RequeueError, SlurmError, NodeListError, OSError) as error:
        click.echo(f"greyhound: no requeue, the job goes on: {error}", err=True)
        raise SystemExit(NOT_NOW) from None
