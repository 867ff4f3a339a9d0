"""What to do about a fail-slow: pure planning, without Redis, Slurm or torch."""
