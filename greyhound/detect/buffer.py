"""The calls in which a period is searched, with their times."""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from greyhound.detect.contexts import Symbols
from greyhound.detect.levels import Ints

_FIRST_CAPACITY = 1 << 10
_Kind = TypeVar("_Kind", bound=np.generic)


class CallBuffer:
    """Two arrays that grow by doubling; appending costs O(1) a call."""

    def __init__(self) -> None:
        """Empty."""
        self.clear()

    def __len__(self) -> int:
        return self._length

    @property
    def symbols(self) -> Symbols:
        """What is held, oldest first; valid until the next change."""
        return self._symbols[: self._length]

    @property
    def t_ns(self) -> Ints:
        """The times of the same calls."""
        return self._t_ns[: self._length]

    def clear(self) -> None:
        """Hold nothing, and give the memory back."""
        self._length = 0
        self._symbols = np.empty(_FIRST_CAPACITY, dtype=np.uint64)
        self._t_ns = np.empty(_FIRST_CAPACITY, dtype=np.int64)

    def append(self, symbols: Symbols, t_ns: Ints) -> None:
        """Copy these calls behind the others."""
        length = self._length + len(symbols)
        if length > len(self._symbols):
            capacity = max(length, 2 * len(self._symbols))
            self._symbols = _grown(self.symbols, capacity)
            self._t_ns = _grown(self.t_ns, capacity)
        self._symbols[self._length : length] = symbols
        self._t_ns[self._length : length] = t_ns
        self._length = length

    def drop(self, calls: int) -> None:
        """Forget the oldest ``calls``."""
        kept = self._length - calls
        self._symbols[:kept] = self._symbols[calls : self._length].copy()
        self._t_ns[:kept] = self._t_ns[calls : self._length].copy()
        self._length = kept


def _grown(held: NDArray[_Kind], capacity: int) -> NDArray[_Kind]:
    larger = np.empty(capacity, dtype=held.dtype)
    larger[: len(held)] = held
    return larger
