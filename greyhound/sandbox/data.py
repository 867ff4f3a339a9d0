"""The micro-batches as a rank reads them: late where `greyhound inject input` says so, ragged where it is asked for."""

import argparse
import math
import random
from collections.abc import Callable, Iterator
from typing import Any

from greyhound.sandbox.option_types import share
from greyhound.sandbox.slowed import Slowed


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of every training that concern its data."""
    parser.add_argument(
        "--ragged",
        type=share,
        default=0.0,
        metavar="SHARE",
        help="documents of differing lengths are packed into the micro-batches, so that the time of one varies by this "
        "share (standard deviation; same tokens, same losses; default 0)",
    )


def stretch_of(seed: int, index: int, ragged: float) -> float:
    """How much longer than an average one micro-batch `index` takes: mean 1, standard deviation `ragged`.

    Log-normal, as the sum over documents of their squared lengths roughly is.
    """
    if not ragged:
        return 1.0
    sigma = math.sqrt(math.log1p(ragged**2))
    return random.Random(f"{seed}/{index}").lognormvariate(-(sigma**2) / 2, sigma)


class Reader:
    """One rank's data: `read` gives a micro-batch by its number; `stretch` is how long the newest one takes."""

    def __init__(self, make: Callable[[int], Any], seed: int, ragged: float, slowed: Slowed) -> None:
        self._make = make
        self._seed = seed
        self._ragged = ragged
        self._slowed = slowed
        self._stretch = 1.0

    def stretch(self) -> float:
        """Of the micro-batch that was read last, whose forward pass follows."""
        return self._stretch

    def batches(self, first: int, count: int) -> Iterator[Any]:
        """The micro-batches of an iteration, first .. first + count - 1."""
        self._slowed.read_data()
        return (self.read(index) for index in range(first, first + count))

    def read(self, index: int) -> Any:
        """Micro-batch `index`."""
        self._stretch = stretch_of(self._seed, index, self._ragged)
        return self._make(index)
