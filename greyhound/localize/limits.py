"""From where on something counts as slow: each figure with its reason."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Thresholds of the verdict. Ratios and shares have no unit; `iterations` are counted."""

    own_ratio: float = 1.05
    """A rank's own time against that of equal ranks. Healthy GPUs of one model differ by 1 to 3 %; a GPU at 0.9 of its
    speed shows 1.05 to 1.11, since the host's share of the own time doesn't grow."""

    transfer_ratio: float = 1.1
    """A communicator's transfers against comparable ones: the paper's 10 % above the median."""

    clear_ratio: float = 1.3
    """A communicator's transfers from where on they are slow in their own right, beside a slow rank that explains all
    the loss: a rank that comes unevenly lengthens its peers' transfers by some per cent."""

    iteration_share: float = 0.03
    """Of an iteration that a component must cost to be worth naming: below, iterations jitter (3 to 6 %) by more, and
    nobody would act on it."""

    chance: float = 5e-4
    """Chance that a profile of a healthy job passes the test of certainty, all its ranks and groups taken together; the
    ratios, the share of the iteration and the steadiness above must be passed as well. In 1,600 drawn healthy
    trainings, half of them ragged, the largest certainty was 0.8 of what is needed."""

    natural: float = 0.01
    """Standard deviation by which healthy components of one make differ for good, relative."""

    steady: float = 0.75
    """Share of the iterations in which a slow rank must be slower than its equals. Ragged sequences make every rank
    slow in some iterations; a slow GPU is slow in (nearly) all."""

    explained: float = 0.8
    """Share of the lost time that must be explained before anybody is named (decision 3)."""

    part: float = 0.15
    """Of the lost time that a component must explain to be named: less may be a side effect of the real cause."""

    gone: float = 0.3
    """Of the lost time: if the profile shows less than this against the reference, the fail-slow had ended by then."""

    prior_spread: float = 0.04
    """Spread of iterations that is assumed (worth two iterations) where few have been seen: real trainings have 3 to
    6 %."""

    common_ratio: float = 1.05
    """All ranks' own time against the reference, from where on they are called slow alike."""

    few: float = 0.25
    """Of the ranks: if the reading of data is slow on more, on most nodes, it is the store, and no node is blamed."""


DEFAULT = Limits()
