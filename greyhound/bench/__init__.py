"""What Greyhound costs, measured: python -m greyhound.bench."""
