"""Checkpoints of the sandbox's trainings: when, where, and one shard a rank (test bed only)."""

import argparse
from pathlib import Path
from typing import Any

from greyhound.sandbox.option_types import positive
from greyhound.sandbox.slowed import Slowed


def add_options(parser: argparse.ArgumentParser) -> None:
    """How often and where."""
    parser.add_argument("--checkpoint-every", type=positive, help="iterations between two checkpoints (default never)")
    parser.add_argument("--checkpoint-dir", type=Path, metavar="DIR", help="where they are saved")


def check_options(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """A usage error where one is asked for without the other."""
    if options.checkpoint_every and options.checkpoint_dir is None:
        parser.error("--checkpoint-every needs --checkpoint-dir DIR")


def save_shard(state: dict[str, Any], folder: Path, rank: int, slowed: Slowed) -> None:
    """Write this rank's newest shard in place of the one before; nobody waits for anybody."""
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"rank{rank}.pt"
    torch.save(state, path.with_suffix(".new"))
    slowed.write_checkpoint()
    path.with_suffix(".new").replace(path)
