"""A private Slurm cluster on this machine, the small Megatron job that runs in it, and fault injection."""
