"""The image of `greyhound detect --plot`: a panel a file, with series, baseline, episodes, minor levels and regimes."""

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from greyhound.detect.offline import Analysis

if TYPE_CHECKING:
    from greyhound.cli.detect import Trail

_PANEL_INCHES = (11.0, 3.2)
_DPI = 110


def trouble(plot: Path) -> str | None:
    """Why an image can't be written there; None if nothing is in the way."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
    except ImportError as error:
        return f"--plot needs the Python package {error.name!r}; install it: pip install 'greyhound[plot]'"
    allowed = FigureCanvasAgg.get_supported_filetypes()
    kind = plot.suffix.lower().removeprefix(".")
    if kind not in allowed:
        return f"--plot {plot}: {plot.suffix or 'no suffix'!r} is no image; use one of .png, .svg, .pdf"
    if not plot.parent.is_dir():
        return f"--plot {plot}: there is no folder {plot.parent}"
    if not os.access(plot if plot.exists() else plot.parent, os.W_OK):
        return f"--plot {plot}: not allowed to write there"
    return None


def draw(panels: list[tuple[str, "Trail", Analysis]], plot: Path) -> None:
    """Draw and write the image. OSError passes through."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    width, height = _PANEL_INCHES
    figure = Figure(figsize=(width, height * len(panels)), dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    for axes, panel in zip(figure.subplots(len(panels), 1, squeeze=False)[:, 0], panels, strict=True):
        _panel(axes, *panel)
    figure.savefig(plot)


def _panel(axes: Any, file: str, trail: "Trail", analysis: Analysis) -> None:
    axes.plot(trail.iterations, trail.seconds, color="0.55", linewidth=0.6, label="iteration time")
    healthy_s = [math.nan if value is None else value for value in trail.healthy_s]
    axes.plot(trail.iterations, healthy_s, color="tab:green", linewidth=1.4, label="healthy")
    last = trail.iterations[-1]
    for number, episode in enumerate(analysis.episodes):
        end = last if episode.end is None else episode.end
        axes.axvspan(episode.onset, end, color="tab:red", alpha=0.2, label=_once("fail-slow", number))
        axes.axvline(episode.reported, color="tab:red", linewidth=1.0, label=_once("reported", number))
    for number, minor in enumerate(analysis.minor):
        axes.axvspan(minor.onset, minor.reported, color="tab:orange", alpha=0.2, label=_once("minor level", number))
    for number, regime in enumerate(analysis.regimes):
        axes.axvline(regime.onset, color="tab:blue", linestyle="--", label=_once("other work", number))
    _frame(axes, file, trail.seconds)


def _frame(axes: Any, file: str, seconds: list[float]) -> None:
    """Titles, and a scale on which one pause of a minute doesn't flatten everything else."""
    ordered = sorted(seconds)
    usual_s = ordered[int(0.98 * (len(ordered) - 1))]
    axes.set_ylim(0, 1.4 * usual_s)
    axes.set_title(file.replace("$", r"\$"), fontsize=9, loc="left")
    axes.set_xlabel("iteration")
    axes.set_ylabel("seconds")
    axes.legend(loc="upper right", fontsize=7, ncols=3)


def _once(label: str, number: int) -> str:
    """Only the first of its kind is named in the legend."""
    return label if number == 0 else "_" + label
