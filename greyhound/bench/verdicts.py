"""What each method says of the labelled series, and how well it fits."""

from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import Pool

from greyhound.detect.methods import METHODS, Method
from greyhound.detect.methods.bocd import BocdMethod, published_bocd
from greyhound.detect.offline import Analysis, OfflineRun
from greyhound.testdata.scoring import Score, SeriesScore, score_series, score_set
from greyhound.testdata.series import Series, communication_series, compute_series

THRESHOLD, WARMUP = 0.10, 10
SEEDS = (90017, 90018, 90019)  # none that the tracker was developed on
COMPARED_SEEDS = (90017,)
KINDS = ("compute", "communication")
_COMPARED = ("window", "bocd", "bocdv")


@dataclass(frozen=True)
class Verdict:
    """One method's answer to one series, and how well it fits."""

    name: str
    kind: str
    shape: str
    method: str
    score: SeriesScore


class _Replay:
    """Change-point probabilities that were computed before: BOCD and BOCD+V look at the same ones."""

    def __init__(self, probabilities: list[float]) -> None:
        self._left: Iterator[float] = iter(probabilities)

    def update(self, x: float) -> float:
        """The next of them."""
        return next(self._left)


class _Recording:
    """A change-point detector that keeps its answers for a replay."""

    def __init__(self) -> None:
        self._change = published_bocd()
        self.said: list[float] = []

    def update(self, x: float) -> float:
        """The detector's answer."""
        self.said.append(self._change.update(x))
        return self.said[-1]


def analyse(series: Series, method: Method) -> Analysis:
    """A method's answer to a labelled series."""
    run = OfflineRun(method)
    for iteration, seconds in enumerate(series.seconds.tolist()):
        run.feed(iteration, seconds)
    return run.result()


def judge(series: Series, methods: tuple[str, ...] = ("full",)) -> list[Verdict]:
    """The verdicts of several methods on a series; BOCD+V needs BOCD before it."""
    recording = _Recording()
    verdicts = []
    for name in methods:
        if name == "bocd":
            method: Method = BocdMethod(WARMUP, None, recording)
        elif name == "bocdv":
            method = BocdMethod(WARMUP, THRESHOLD, _Replay(recording.said))
        else:
            method = METHODS[name](THRESHOLD, WARMUP)
        episodes = analyse(series, method).episodes
        score = score_series(series.truth, episodes, len(series.seconds))
        verdicts.append(Verdict(series.name, series.kind, series.shape, name, score))
    return verdicts


def _judge_all(series: Series) -> list[Verdict]:
    return judge(series, (*_COMPARED, "full"))


def verdicts_of(seed: int, compare: bool = False, processes: int | None = None) -> list[Verdict]:
    """All verdicts on the labelled set of a seed; with ``compare`` also those of the paper's methods."""
    series = [*communication_series(seed), *compute_series(seed)]
    with Pool(processes) as pool:
        rows = pool.map(_judge_all if compare else judge, series, chunksize=4)
    return [verdict for each in rows for verdict in each]


def score(verdicts: list[Verdict], method: str, kind: str) -> Score:
    """One method's figures on one kind of series."""
    return score_set(row.score for row in verdicts if row.method == method and row.kind == kind)
