"""Talking to Slurm: node lists, job ids, the client."""
