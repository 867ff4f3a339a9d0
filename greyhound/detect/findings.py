"""What a tracker says of one rank; iterations are the rank's own, times seconds an iteration."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Opened:
    """A fail-slow began at iteration ``onset`` and was certain at ``reported``; ``slowdown`` = slow_s / healthy_s."""

    onset: int
    reported: int
    healthy_s: float
    slow_s: float
    slowdown: float


@dataclass(frozen=True)
class Closed:
    """The fail-slow that began at ``onset`` ended before iteration ``end``; figures over the whole episode."""

    onset: int
    end: int
    reported: int
    slowdown: float
    lost_s: float


@dataclass(frozen=True)
class Regime:
    """From iteration ``onset`` on the work itself is another one; the healthy time is learnt anew."""

    onset: int
    reported: int
    healthy_s: float | None


@dataclass(frozen=True)
class Minor:
    """A level above healthy but below the threshold, that held long enough to matter; level = level_s / healthy_s."""

    onset: int
    reported: int
    healthy_s: float
    level_s: float
    level: float


Finding = Opened | Closed | Regime | Minor
