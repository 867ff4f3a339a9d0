"""Which component makes a job slow: pure functions of what the ranks measured."""
