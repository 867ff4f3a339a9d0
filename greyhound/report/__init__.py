"""What the jobs' records and Slurm's accounting say together: who was slowed, by what, and what it cost."""
