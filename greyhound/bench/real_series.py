"""What our method says of iteration times of real runs; they lie beside the repository and aren't part of it."""

import csv
import os
from dataclasses import dataclass
from pathlib import Path

from greyhound.detect.methods import METHODS
from greyhound.detect.offline import Analysis, OfflineRun
from greyhound.trace.series_file import SeriesReader

FOLDER = Path(os.environ.get("GREYHOUND_SERIES", Path(__file__).resolve().parents[3] / "shared" / "data" / "series"))
CLEAN = (
    "modded_soap",
    "modded_optimizers_e21a",
    "modded_2510_scaleup1b_a",
    "jonhenshaw_nanochat_speedrun",
    "deepspeed_chat_dpo_opt350m",
    "pgolf_legendre",
    "mlperf30_ssd_azure_ndh100_r1",
)
LADDERS = {"modded_2412_valueembed_a": 1, "modded_medium_2512_bulk": 3, "modded_short_260210_w25": 2}
"""Runs whose work grows by plan, and how many times it does so clearly."""
LINKS = ("pipemorph_128gpu_1f1b", "pipemorph_128gpu_zb")
_LABELS = "labels_pipemorph_128gpu"
_STRONG_S = 0.02
_EARLY, _LATE = 5, 12


@dataclass(frozen=True)
class RealRow:
    """One series: what a detector must say, and what ours says."""

    name: str
    expected: str
    said: str
    met: bool


def real_rows(threshold: float, warmup: int) -> list[RealRow]:
    """All series that are there; none where the folder is absent."""
    if not FOLDER.is_dir():
        return []
    rows = [_clean(name, analyse(name, threshold, warmup)) for name in CLEAN]
    rows += [_ladder(name, analyse(name, threshold, warmup)) for name in LADDERS]
    return rows + [_links(name, analyse(name, threshold, warmup)) for name in LINKS]


def analyse(name: str, threshold: float, warmup: int) -> Analysis:
    """Our method's answer to a series of the folder."""
    run = OfflineRun(METHODS["full"](threshold, warmup))
    with (FOLDER / f"{name}.csv").open("rb") as stream:
        for iteration, seconds in SeriesReader(stream):
            run.feed(iteration, seconds)
    return run.result()


def _clean(name: str, analysis: Analysis) -> RealRow:
    count = len(analysis.episodes)
    return RealRow(name, "nothing", _alarms(count), count == 0)


def _ladder(name: str, analysis: Analysis) -> RealRow:
    count = len(analysis.episodes)
    return RealRow(name, "at most one report a level", _alarms(count), count <= LADDERS[name])


def _alarms(count: int) -> str:
    return "nothing" if count == 0 else f"{count} report{'s' if count > 1 else ''}"


def link_windows() -> list[tuple[int, int, bool]]:
    """(first iteration, end, whether it is one of the strong ones) of the injected link delays."""
    with (FOLDER / f"{_LABELS}.csv").open(newline="") as file:
        return [
            (int(row["start_iteration"]), int(row["end_iteration"]), float(row["added_delay_s"]) > _STRONG_S)
            for row in csv.DictReader(file)
        ]


def _links(name: str, analysis: Analysis) -> RealRow:
    windows = link_windows()
    strong = [(start, end) for start, end, is_strong in windows if is_strong]
    found = sum(any(start - _EARLY <= row.onset <= start + _LATE for row in analysis.episodes) for start, _ in strong)
    stray = sum(not any(start - _EARLY <= row.onset < end for start, end, _ in windows) for row in analysis.episodes)
    expected = f"{len(strong)} strong windows, at most one false alarm in both runs"
    return RealRow(name, expected, f"{found} found, {stray} false", found == len(strong) and stray <= 1)
