"""Symbols in context: a call together with the calls right before it, as one 64-bit hash.

Where no single symbol occurs just once an iteration (fully sharded training: all-gathers and reduce-scatters of one
size), some short sequence does.
"""

import numpy as np
from numpy.typing import NDArray

Symbols = NDArray[np.uint64]

_FACTOR = 0x9E3779B97F4A7C15  # odd, so that no bit is lost
_WORD = 2**64 - 1
_HALF = np.uint64(32)
SIZE = np.uint64(2**32 - 1)
"""The part of a symbol that is of the size only."""
_SAMPLE_STEP, _FREQUENT_PARTS = 61, 512


def contexts(symbols: Symbols, width: int) -> Symbols:
    """Hash of each symbol and the ``width`` - 1 before it (a power of two); the first ``width`` - 1 are of fewer."""
    hashed, factor, done = symbols, _FACTOR, 1
    while done < width:
        wider = hashed.copy()
        wider[done:] += hashed[:-done] * np.uint64(factor)
        hashed, factor, done = wider, factor * factor & _WORD, 2 * done
    return hashed


def kinds(symbols: Symbols) -> Symbols:
    """What a call is, whatever its size: the upper half of its symbol (``trace.records.symbols``)."""
    return symbols >> _HALF


def without_sizes(symbols: Symbols, ragged: Symbols) -> Symbols:
    """The symbols, those of the ``ragged`` kinds without their sizes."""
    if len(ragged) == 0:
        return symbols
    kind = kinds(symbols)
    return np.where(contains(ragged, kind), kind << _HALF, symbols)


def ragged_kinds(symbols: Symbols, least_sizes: int) -> Symbols:
    """The kinds of call that come in at least so many sizes."""
    kind, sizes = np.unique(kinds(np.unique(symbols)), return_counts=True)
    return np.asarray(kind[sizes >= least_sizes])


def contains(known: Symbols, symbols: Symbols) -> NDArray[np.bool_]:
    """Which of ``symbols`` are among ``known`` (sorted); faster than np.isin where few are known."""
    if len(known) == 0:
        return np.zeros(len(symbols), dtype=np.bool_)
    place = np.minimum(np.searchsorted(known, symbols), len(known) - 1)
    return np.asarray(known[place] == symbols)


def rare(context: Symbols, wanted: int) -> NDArray[np.int64]:
    """Positions of about ``wanted`` calls, all those of some rare contexts: enough to see at what distance they return.

    First the frequent contexts are left out, as a sample of the calls shows them; then all but a random share of the
    contexts.
    """
    known, count = np.unique(context[::_SAMPLE_STEP], return_counts=True)
    kept = ~contains(known[count > count.sum() // _FREQUENT_PARTS], context)
    held = int(np.count_nonzero(kept))
    if held > wanted:
        bits = (held // wanted).bit_length()
        kept &= (context * np.uint64(_FACTOR)) >> np.uint64(64 - bits) == 0
    return np.flatnonzero(kept)
