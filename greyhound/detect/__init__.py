"""Pure functions and small state objects that find periods, change points and fail-slows in numbers."""
