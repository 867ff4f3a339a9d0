"""Finds the period of a call stream from the gaps of its rarest recurring symbols.

An iteration holds calls on several levels: layers repeat in a micro-batch, micro-batches in an iteration. A level is
proposed by a symbol that returns at even distances, and verified by comparing what lies between (equality of symbols
as a multiset, so that calls reordered between threads don't matter). Symbols are only compared, never ordered.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Symbols = NDArray[np.uint64]

MATCH_SHARE = 0.95  # the paper's M (section 4.2)
_MIN_SEGMENTS = 3
# Wanted of a period that has hardly a symbol of its own, for it may be a layer's; more so where it is a quick one.
_PLAIN_SEGMENTS, _QUICK_PLAIN_SEGMENTS = 48, 2048
_QUICK_NS = 5_000_000
_IRREGULAR_SHARE = 0.1
_COMPARED_SEGMENTS = 12
_MAX_REPEATS = 256  # of the anchor in a period
_REPEATS_TRIED = 8  # rare symbols for which that is tried
_MAX_OCCURRENCES = 2048
_MAX_MICRO_BATCHES = 64
_FOREIGN_SYMBOLS = 3
_EXTRA_TIME_SHARE = 0.05
_PROPORTION_SLACK = 0.25


@dataclass(frozen=True)
class Pattern:
    """A period of ``calls`` calls that ends at each ``every``-th occurrence of ``anchor``."""

    anchor: int
    every: int
    calls: int
    fingerprint: int


@dataclass(frozen=True)
class _Stream:
    symbols: Symbols
    t_ns: Ints
    ids: Ints
    count: Ints  # by id
    first: Ints  # by id: first position
    order: Ints  # positions, grouped by id
    start: Ints  # by id: where its positions begin in order

    def positions(self, symbol_id: int) -> Ints:
        begin = self.start[symbol_id]
        return self.order[begin : begin + self.count[symbol_id]]


@dataclass(frozen=True)
class _Level:
    symbol_id: int
    every: int
    calls: int
    ends: Ints  # positions of the anchors
    modal: int  # index of a segment that is like most others
    own_symbols: int  # symbols that occur once a period


def tolerance(calls: int) -> int:
    """By how many calls an iteration of a period of ``calls`` may differ and still be one."""
    return max(calls // 20, min(2, calls // 4))


def segment_sums(symbols: Symbols, ends: Ints) -> Symbols:
    """Sum modulo 2^64 of the symbols after each end up to the next: equal for equal multisets."""
    running = np.cumsum(symbols, dtype=np.uint64)
    return np.diff(running[ends])


def find_pattern(symbols: Symbols, t_ns: Ints, min_segments: int = _MIN_SEGMENTS) -> Pattern | None:
    """The period of a stream of symbols with their times (ns), or None as long as it doesn't show.

    The smallest verified period that isn't a part of a larger one, like a layer's or a micro-batch's.
    """
    if len(symbols) < 2 * min_segments:
        return None
    stream = _index(symbols, np.asarray(t_ns, dtype=np.int64))
    levels = _verified_levels(stream, min_segments)
    if not levels:
        return None
    level = levels[0]
    for coarser in levels[1:]:
        if _is_part(stream, level, coarser):
            level = coarser
    if level is levels[0] and level.own_symbols < 2 and len(level.ends) <= _plain_segments(stream, level):
        return None
    sums = segment_sums(symbols, level.ends)
    anchor, every = _last_of_iteration(stream, level)
    return Pattern(anchor, every, level.calls, int(sums[level.modal]))


def _plain_segments(stream: _Stream, level: _Level) -> int:
    quick = np.median(np.diff(stream.t_ns[level.ends])) < _QUICK_NS
    return _QUICK_PLAIN_SEGMENTS if quick else _PLAIN_SEGMENTS


def _last_of_iteration(stream: _Stream, level: _Level) -> tuple[int, int]:
    """The symbol to cut at, and at which of its occurrences.

    Of the symbols that occur once a period the one that came last to the stream: it ends the iteration, most often
    with a reduction that the host waits for, so that its time is a steady one.
    """
    symbols = len(stream.count)
    segments = range(max(0, level.modal - 1), level.modal + 1)
    counts = [np.bincount(_segment(stream, level.ends, i), minlength=symbols) for i in segments]
    once = np.flatnonzero(np.all(np.stack(counts) == 1, axis=0))
    if len(once) == 0:
        return int(stream.symbols[level.ends[-1]]), level.every
    return int(stream.symbols[stream.first[once].max()]), 1


def _index(symbols: Symbols, t_ns: Ints) -> _Stream:
    _, first, ids, count = np.unique(symbols, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(ids, kind="stable")
    return _Stream(symbols, t_ns, ids, count, first, order, np.cumsum(count) - count)


def _verified_levels(stream: _Stream, min_segments: int) -> list[_Level]:
    """Verified levels, finest first."""
    proposals = _even_symbols(stream, min_segments) + _repeated_symbols(stream, min_segments)
    levels: list[_Level] = []
    for calls, symbol_id, every in sorted(proposals, key=lambda row: (row[0], row[2], -int(stream.first[row[1]]))):
        if levels and calls <= levels[-1].calls + tolerance(levels[-1].calls):
            continue
        level = _verify(stream, symbol_id, every, calls, min_segments)
        if level is not None:
            levels.append(level)
    return levels


def _even_symbols(stream: _Stream, min_segments: int) -> list[tuple[int, int, int]]:
    """(calls, id, 1) of a symbol for each distance at which symbols return evenly."""
    wanted = stream.count > min_segments
    gap = np.diff(stream.order)
    gap_id = stream.ids[stream.order[1:]]
    inside = (gap_id == stream.ids[stream.order[:-1]]) & wanted[gap_id]
    gap, gap_id = gap[inside], gap_id[inside]
    known = np.flatnonzero(wanted)
    if len(known) == 0:
        return []
    gaps = stream.count[known] - 1
    begin = np.cumsum(gaps) - gaps
    middle = gap[np.lexsort((gap, gap_id))][begin + gaps // 2]
    slack = np.maximum(middle // 20, np.minimum(2, middle // 4))
    uneven = np.abs(gap - np.repeat(middle, gaps)) > np.repeat(slack, gaps)
    total = np.add.reduceat(uneven.astype(np.int64), begin)
    latest = sum(uneven[begin + gaps - 1 - back] for back in range(min_segments))
    even = (total <= np.maximum(1, gaps * _IRREGULAR_SHARE)) & (np.asarray(latest) == 0)
    return _best_of_each_distance(stream, known[even], middle[even], total[even])


def _best_of_each_distance(stream: _Stream, ids: Ints, middle: Ints, uneven: Ints) -> list[tuple[int, int, int]]:
    """Of symbols at about the same distance: the most even one, then the last in the iteration."""
    best: list[tuple[int, int, int]] = []
    rank = np.lexsort((-stream.first[ids], uneven, middle))
    at = 0
    while at < len(rank):
        calls = int(middle[rank[at]])
        end = at + int(np.searchsorted(middle[rank[at:]], calls + tolerance(calls), side="right"))
        group = rank[at:end]
        chosen = group[np.lexsort((-stream.first[ids[group]], uneven[group]))[0]]
        best.append((int(middle[chosen]), int(ids[chosen]), 1))
        at = end
    return best


def _repeated_symbols(stream: _Stream, min_segments: int) -> list[tuple[int, int, int]]:
    """(calls, id, every) of rare symbols whose every-th occurrences are evenly apart."""
    recurring = np.flatnonzero(stream.count > 2 * min_segments)
    by_rarity = recurring[np.lexsort((-stream.first[recurring], stream.count[recurring]))]
    found = []
    for symbol_id in by_rarity[:_REPEATS_TRIED]:
        positions = stream.positions(int(symbol_id))[-_MAX_OCCURRENCES:]
        every = _smallest_repeat(positions, min_segments)
        if every is not None:
            calls = int(np.median(positions[every:] - positions[:-every]))
            found.append((calls, int(symbol_id), every))
    return found


def _smallest_repeat(positions: Ints, min_segments: int) -> int | None:
    gap = np.diff(positions)
    for every in range(2, min(_MAX_REPEATS, len(gap) // min_segments) + 1):
        same = np.abs(gap[every:] - gap[:-every]) <= 1
        if len(same) >= every and same.mean() >= MATCH_SHARE and not (np.abs(gap - gap[0]) <= 1).all():
            return every
    return None


def _verify(stream: _Stream, symbol_id: int, every: int, calls: int, min_segments: int) -> _Level | None:
    positions = stream.positions(symbol_id)
    ends = positions[(len(positions) - 1) % every :: every]
    lengths = np.diff(ends)
    regular = np.flatnonzero(np.abs(lengths - calls) <= tolerance(calls))
    if len(regular) < max(min_segments, (1 - _IRREGULAR_SHARE) * len(lengths) - 1):
        return None
    sums = segment_sums(stream.symbols, ends)
    _, which, count = np.unique(sums[regular], return_inverse=True, return_counts=True)
    modal = int(regular[np.flatnonzero(count[which] == count.max())[-1]])
    exact_calls = int(lengths[modal])
    share = lengths[sums == sums[modal]].sum() / (ends[-1] - ends[0])
    compared = regular[-_COMPARED_SEGMENTS:]
    if share < MATCH_SHARE and not (calls >= 3 and _alike(stream, ends, compared)):
        return None
    once = int((np.bincount(_segment(stream, ends, modal)) == 1).sum())
    return _Level(symbol_id, every, exact_calls, ends, modal, once)


def _segment(stream: _Stream, ends: Ints, segment: int) -> Ints:
    return stream.ids[ends[segment] + 1 : ends[segment + 1] + 1]


def _alike(stream: _Stream, ends: Ints, compared: Ints) -> bool:
    """Whether the segments share 95 % of their calls with their median, taken as multisets."""
    symbols = len(stream.count)
    counts = np.stack([np.bincount(_segment(stream, ends, int(i)), minlength=symbols) for i in compared])
    middle = np.median(counts, axis=0)
    return bool(np.minimum(counts, middle).sum() >= MATCH_SHARE * np.maximum(counts, middle).sum())


def _is_part(stream: _Stream, fine: _Level, coarse: _Level) -> bool:
    """Whether ``fine`` is a repeated part (layer, micro-batch) of the iteration ``coarse``.

    Not so for what merely happens every few iterations: a logging call (adds hardly any time or symbols) or an
    evaluation (changes the proportions, since it runs forward only).
    """
    symbols = len(stream.count)
    fine_count = np.bincount(_segment(stream, fine.ends, fine.modal), minlength=symbols)
    coarse_count = np.bincount(_segment(stream, coarse.ends, coarse.modal), minlength=symbols)
    ratio = coarse_count[fine_count > 0] / fine_count[fine_count > 0]
    foreign = (fine_count == 0) & (coarse_count > 0)
    if ratio.max() - ratio.min() > _PROPORTION_SLACK or not foreign.any():
        return False
    if fine.own_symbols < 2:
        return True
    if np.median(ratio) > _MAX_MICRO_BATCHES:
        return False
    return int(foreign.sum()) >= _FOREIGN_SYMBOLS or _takes_time(stream, fine, foreign)


def _takes_time(stream: _Stream, fine: _Level, foreign: NDArray[np.bool_]) -> bool:
    """Whether fine segments with foreign calls last clearly longer than the others."""
    running = np.cumsum(foreign[stream.ids])
    has_foreign = np.diff(running[fine.ends]) > 0
    took_ns = np.diff(stream.t_ns[fine.ends])
    if has_foreign.all() or not has_foreign.any():
        return False
    plain_ns = took_ns[~has_foreign]
    middle_ns = np.median(plain_ns)
    noise_ns = 4 * np.median(np.abs(plain_ns - middle_ns)) / np.sqrt(has_foreign.sum())
    return bool(np.median(took_ns[has_foreign]) - middle_ns > max(_EXTRA_TIME_SHARE * middle_ns, noise_ns))
