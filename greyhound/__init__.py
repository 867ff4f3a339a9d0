"""Greyhound hunts fail-slows in hybrid-parallel training jobs on Slurm clusters."""

__version__ = "0.1.0"
