"""Methods that turn iteration times into fail-slows: ours, and the paper's comparison methods as published."""

import math
from collections.abc import Callable
from typing import Protocol

from greyhound.detect.findings import Finding
from greyhound.detect.methods.bocd import BocdMethod
from greyhound.detect.methods.window import WindowMethod
from greyhound.detect.tracker import Tracker, TrackerConfig


class Method(Protocol):
    """What all of them can do; nothing but what came before is used at any time."""

    @property
    def healthy_s(self) -> float | None:
        """Seconds of a healthy iteration as far as the method knows one."""

    def update(self, iteration: int, seconds: float) -> list[Finding]:
        """Take one iteration's time; what became certain with it."""

    def pattern_changed(self, iteration: int) -> list[Finding]:
        """The calls show other work from ``iteration`` on."""


MakeMethod = Callable[[float, int], Method]
"""(threshold, warm-up iterations) -> a fresh method."""

METHODS: dict[str, MakeMethod] = {
    "full": lambda threshold, warmup: Tracker(TrackerConfig(threshold, warmup, minor_holds_s=math.inf)),
    "bocdv": lambda threshold, warmup: BocdMethod(warmup, verify=threshold),
    "bocd": lambda threshold, warmup: BocdMethod(warmup, verify=None),
    "window": lambda threshold, warmup: WindowMethod(warmup, threshold),
}
"""By the names of ``greyhound detect --method``. In a series minor levels go by iterations alone."""
