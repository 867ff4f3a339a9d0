"""One JSON line for machines and one line for people."""

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Measured:
    """A figure with its target; ``better`` is "more" or "less"."""

    name: str
    value: float
    unit: str
    target: float
    better: str

    @property
    def met(self) -> bool:
        """Whether the target is reached."""
        return self.value >= self.target if self.better == "more" else self.value <= self.target

    def sentence(self) -> str:
        """The figure for people."""
        bound = "at least" if self.better == "more" else "at most"
        verdict = "met" if self.met else "MISSED"
        return f"{self.name}: {self.value:.4g} {self.unit} (target {bound} {self.target:g}: {verdict})"


def report(bench: str, figures: list[Measured]) -> None:
    """Print the figures of one benchmark."""
    rows = [asdict(figure) | {"met": figure.met} for figure in figures]
    print(json.dumps({"bench": bench, "figures": rows}), flush=True)
    for figure in figures:
        print(figure.sentence(), flush=True)
