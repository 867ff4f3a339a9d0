"""Finds the period of a call stream from the distances at which rare symbols return.

An iteration holds calls on several levels: layers repeat in a micro-batch, micro-batches in an iteration. A level is
proposed by a symbol (or a short sequence of them) that returns at even distances, and verified by comparing what lies
between (equality of symbols as a multiset, so that calls reordered between threads don't matter). Symbols are only
compared, never ordered. docs/detection-period.md has the whole story.
"""

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from greyhound.detect.contexts import SIZE, Symbols, contains, contexts, kinds, ragged_kinds, rare, without_sizes
from greyhound.detect.levels import Ints, Level, has_pause, iteration_level

MATCH_SHARE = 0.95  # the paper's M (section 4.2)
_MIN_SEGMENTS = 3
# How long a period must have been seen that may be a part of one itself: a layer, a micro-batch. Not so often if it is
# many calls, or if it holds the pause of the optimiser's step and is no quick layer.
_FLAT_NS, _FEWEST_FLAT, _MOST_FLAT, _FLAT_CALLS = 20e9, 16, 4000, 1 << 17
_FEWEST_PAUSED = 8
_PAUSED_SEGMENTS = ((0, 512), (30_000_000, 128), (100_000_000, 32))
_GRADIENT_SIZES, _NESTED_SIZES, _GRADIENT_SEGMENTS, _GRADIENT_NS = 3, 2, 5, 100_000_000
_MANY_SIZES, _FULL_PROOF, _MOSTLY = 6, 2, 0.5
_INTERRUPTED = 3  # so many times as often if never without an interruption
_LAYER_NS = 30_000_000
_LONG_CALLS = 1 << 16  # a period of so many needs to be seen only twice
_IRREGULAR_SHARE = 0.25
_WIDE_SHARE = 0.6  # of the segments between wide contexts that must be the same, since their multisets tell little
# Of sequences of so many calls this share is common to two iterations although threads reorder some calls, and to no
# others, however few kinds of call there are; segments of fewer calls hold too few sequences.
_ORDER_WIDTH, _ORDER_SHARE, _ORDER_CALLS = 16, 0.05, 256
_COMPARED_SEGMENTS = 12
_LATEST_SEGMENTS = 3  # one of these must be even
_WIDTHS = (1, 2, 4, 8, 32, 128)
_EXPLAINED_SHARE = 0.9
_MAX_OCCURRENCES = 4096
_THINNED_CALLS, _SORTED_CALLS = 1 << 17, 1 << 16  # of longer streams only so many calls are looked at for proposals
_GROUPS_OF_A_COUNT, _MAX_GROUPS = 16, 256
_FAR_OFTENER = 3  # a repetition seen so many times as often as another of about the same length is the better one
_RAGGED_SIZES = 8
_ALL_RAGGED_CALLS, _ALL_RAGGED_SEGMENTS = 4096, 64
_KEPT_SYMBOLS = 1024


@dataclass(frozen=True)
class Pattern:
    """A period of ``calls`` calls: an iteration ends ``width`` - 1 calls before each context ``anchor``.

    fingerprint: sum of its symbols modulo 2^64. ragged: kinds of calls that are compared without their size. once,
    members: the symbols that occur once in it, and all (at most 1024 of each, the smallest).
    """

    anchor: int
    width: int
    calls: int
    fingerprint: int
    ragged: tuple[int, ...]
    once: frozenset[int]
    members: frozenset[int]


@dataclass(frozen=True)
class _Found:
    level: Level
    finer: Level | None  # what is repeated in it
    micro_batch: Level | None  # the coarsest such with symbols of its own
    symbols: Symbols  # as they were compared
    ragged: Symbols


@dataclass(frozen=True)
class _Group:
    """The places of one context, and how evenly they lie."""

    calls: int
    uneven: int
    positions: Ints


def tolerance(calls: int) -> int:
    """By how many calls an iteration of a period of ``calls`` may differ and still be one."""
    return max(calls // 20, min(2, calls // 4))


def find_pattern(
    symbols: Symbols,
    t_ns: Ints,
    min_segments: int = _MIN_SEGMENTS,
    patient: bool = True,
    known: Pattern | None = None,
) -> Pattern | None:
    """The period of a stream of symbols with their times (ns), or None as long as it doesn't show.

    With ``patient`` a period in which no micro-batches show is awaited longer, for it may be a micro-batch itself.
    ``known``: a pattern that the stream has followed; it is among those that are weighed.
    """
    if len(symbols) < 2 * min_segments:
        return None
    found = _search(symbols, t_ns, np.empty(0, np.uint64), min_segments, known)
    if found is None or found.level.own < 2 or found.level.explained < _EXPLAINED_SHARE:
        ragged = ragged_kinds(symbols[-_SORTED_CALLS:], _RAGGED_SIZES)
        other = _search(symbols, t_ns, ragged, min_segments, known) if len(ragged) else None
        if other is not None and (found is None or other.level.calls > found.level.calls):
            found = other
    if found is None or not _seen_enough(found, t_ns, patient):
        return None
    return _pattern(found)


def _seen_enough(found: _Found, t_ns: Ints, patient: bool) -> bool:
    level = found.level
    if level.calls >= _LONG_CALLS:
        return True
    if not patient and (level.own >= 2 or found.finer is not None):
        return True
    wanted, proven = _wanted_segments(found, t_ns)
    return level.run >= wanted or level.good >= (wanted if proven else _INTERRUPTED * wanted)


def _wanted_segments(found: _Found, t_ns: Ints) -> tuple[int, bool]:
    """How often the period must have been seen (what is inside an iteration shows before the first one is over).

    And whether it is known for an iteration by its calls, so that it may be interrupted.
    """
    level = found.level
    took_ns = max(_usual_ns(level, t_ns), 1.0)
    nested = found.micro_batch is not None and _usual_ns(found.micro_batch, t_ns) >= _LAYER_NS
    plain = level.own < 2 and found.finer is None
    paused = not plain and has_pause(t_ns, level)
    proof = _proof(level.segment(found.symbols), found.micro_batch is not None) if took_ns >= _GRADIENT_NS else 0
    if nested and proof and level.equal >= _MOSTLY:
        return _MIN_SEGMENTS, True
    if nested and proof:  # reordered: three segments don't tell the number of calls
        return _GRADIENT_SEGMENTS, True
    if proof and (paused or (proof >= _FULL_PROOF and level.equal >= _MOSTLY)):
        return _GRADIENT_SEGMENTS, True
    if not paused:
        wanted = int(np.clip(_FLAT_NS / took_ns, _FEWEST_FLAT, _MOST_FLAT))
    elif nested and took_ns >= _GRADIENT_NS:
        return _FEWEST_PAUSED, False
    else:
        most = min(segments for least_ns, segments in _PAUSED_SEGMENTS if took_ns >= least_ns)
        wanted = int(np.clip(_FLAT_NS / took_ns, _FEWEST_PAUSED, most))
    return min(wanted, max(_FLAT_CALLS // level.calls, _MIN_SEGMENTS)), False


def _proof(segment: Symbols, nested: bool) -> int:
    """Whether only a whole iteration looks like this (2), most likely (1) or not (0): by gradients, or weights.

    Buckets of gradients come in several sizes, each once and of no other kind of call, unlike activations; so few
    that one kind of call has them all might be the weights that a forward pass gathers. Sharded weights and gradients
    are two kinds of call (or more), each in several sizes; what is reduced at the end of all has a size of its own,
    once. ``nested``: smaller repetitions show in it, so that two such sizes do.
    """
    known, count = np.unique(segment, return_counts=True)
    _, which, kinds_of_size = np.unique(known & SIZE, return_inverse=True, return_counts=True)
    lone = known[(kinds_of_size[which] == 1) & (count == 1)]
    if len(lone) >= (_NESTED_SIZES if nested else _GRADIENT_SIZES):
        return _FULL_PROOF if len(lone) >= _MANY_SIZES or len(np.unique(kinds(lone))) > 1 else 1
    sizes_of_kind = np.unique(kinds(known), return_counts=True)[1]
    return _FULL_PROOF if len(lone) > 0 and int((sizes_of_kind >= 2).sum()) >= 2 else 0


def _usual_ns(level: Level, t_ns: Ints) -> float:
    return float(np.median(np.diff(t_ns[level.ends])))


def _search(
    symbols: Symbols, t_ns: Ints, ragged: Symbols, min_segments: int, known: Pattern | None = None
) -> _Found | None:
    """The iteration of the stream, sizes of the ``ragged`` kinds left out; None if no level is verified."""
    compared = without_sizes(symbols, ragged)
    if len(ragged) == 0:
        levels = _levels(compared, _WIDTHS, min_segments)
    else:
        # A period is only believed if something of a fixed size returns with it, or after very long.
        levels = _levels(compared, (1,), min_segments, ~contains(ragged, kinds(symbols)))
        if not levels and len(symbols) >= _ALL_RAGGED_CALLS:
            levels = [level for level in _levels(compared, _WIDTHS, _ALL_RAGGED_SEGMENTS) if level.calls >= 2]
    if not levels:
        return None
    if known is not None and known.ragged == tuple(ragged.tolist()):
        levels = _with_known(compared, levels, known, min_segments)
    level = iteration_level(compared, t_ns, levels)
    parts = [finer for finer in levels if 2 * finer.calls <= level.calls]
    with_own = [finer for finer in parts if finer.own >= 2]
    return _Found(level, parts[-1] if parts else None, with_own[-1] if with_own else None, compared, ragged)


def _levels(
    symbols: Symbols, widths: tuple[int, ...], min_segments: int, anchors: NDArray[np.bool_] | None = None
) -> list[Level]:
    """Verified levels, finest first; wider contexts are tried only as long as the coarsest leaves much unexplained."""
    running = np.cumsum(symbols, dtype=np.uint64)
    levels: list[Level] = []
    for width in widths:
        context = contexts(symbols, width)
        groups = _groups(context, min_segments, anchors)
        if groups is None:
            break
        for group in groups:
            rival = _about_as_long(levels, group.calls)
            if rival is not None and (rival.width < width or len(group.positions) < _FAR_OFTENER * rival.good):
                continue
            level = _verify(symbols, running, context, width, group, min_segments)
            if level is not None and (rival is None or level.good >= _FAR_OFTENER * rival.good):
                levels = [*(other for other in levels if other is not rival), level]
        if levels and max(levels, key=lambda level: level.calls).explained >= _EXPLAINED_SHARE:
            break
    return sorted(levels, key=lambda level: level.calls)


def _about_as_long(levels: list[Level], calls: int) -> Level | None:
    return next((level for level in levels if abs(calls - level.calls) <= tolerance(level.calls)), None)


def _with_known(symbols: Symbols, levels: list[Level], known: Pattern, min_segments: int) -> list[Level]:
    """The levels and the known pattern's, which can be missing where a coarser one explains all."""
    if _about_as_long(levels, known.calls) is not None:
        return levels
    context = contexts(symbols, known.width)
    positions = np.flatnonzero(context == np.uint64(known.anchor))[-_MAX_OCCURRENCES:]
    group = _evenness(positions, min_segments) if len(positions) > min_segments else None
    if group is None or abs(group.calls - known.calls) > tolerance(known.calls):
        return levels
    level = _verify(symbols, np.cumsum(symbols, dtype=np.uint64), context, known.width, group, min_segments)
    return levels if level is None else sorted([*levels, level], key=lambda each: each.calls)


def _groups(context: Symbols, min_segments: int, anchors: NDArray[np.bool_] | None) -> list[_Group] | None:
    """Contexts that return evenly; of those at about the same distance the most even ones and the last first.

    None if no context returns: no wider one will.
    """
    places = np.arange(len(context)) if len(context) < _THINNED_CALLS else rare(context, _SORTED_CALLS)
    ordered = context[places]
    order = np.argsort(ordered, kind="stable")
    ordered, order = ordered[order], places[order]
    begin = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))[: len(order)]
    count = np.diff(begin, append=len(order))
    if len(places) == len(context) and count.max(initial=0) < 2:
        return None
    first = order[begin]
    least = 2 if len(context) >= 2 * _LONG_CALLS else min_segments + 1
    usable = count >= least
    if anchors is not None:
        usable &= anchors[first]
    groups = []
    for at in _rarest(np.flatnonzero(usable), count, first):
        group = _evenness(order[begin[at] : begin[at] + count[at]][-_MAX_OCCURRENCES:], min_segments)
        if group is not None:
            groups.append(group)
    return sorted(groups, key=lambda group: (group.calls, group.uneven, -int(group.positions[0])))


def _rarest(usable: Ints, count: Ints, first: Ints) -> Ints:
    """At most 256 of the usable contexts: the rarest, and of those that are equally often the last to appear."""
    usable = usable[np.lexsort((-first[usable], count[usable]))]
    often = count[usable]
    new = np.flatnonzero(np.concatenate(([True], often[1:] != often[:-1])))[: len(often)]
    number = np.arange(len(often)) - np.repeat(new, np.diff(new, append=len(often)))
    kept: Ints = usable[number < _GROUPS_OF_A_COUNT][:_MAX_GROUPS]
    return kept


def _evenness(positions: Ints, min_segments: int) -> _Group | None:
    gap = np.diff(positions)
    middle = int(np.partition(gap, len(gap) // 2)[len(gap) // 2])
    least = _least_segments(middle, min_segments)
    uneven = np.abs(gap - middle) > tolerance(middle)
    total = int(uneven.sum())
    if len(gap) < least or total > max(1, len(gap) * _IRREGULAR_SHARE) or uneven[-_LATEST_SEGMENTS:].all():
        return None
    return _Group(middle, total, positions)


def _least_segments(calls: int, min_segments: int) -> int:
    return 1 if calls >= _LONG_CALLS else min_segments


def _verify(
    symbols: Symbols, running: Symbols, context: Symbols, width: int, group: _Group, min_segments: int
) -> Level | None:
    ends, calls = group.positions, group.calls
    lengths = np.diff(ends)
    regular = np.flatnonzero(np.abs(lengths - calls) <= tolerance(calls))
    if len(regular) < max(_least_segments(calls, min_segments), (1 - _IRREGULAR_SHARE) * len(lengths) - 1):
        return None
    sums = np.diff(running[ends])
    _, which, count = np.unique(sums[regular], return_inverse=True, return_counts=True)
    modal = int(regular[np.flatnonzero(count[which] == count.max())[-1]])
    equal = sums == sums[modal]
    share = np.count_nonzero(equal) / len(regular)
    calls = int(lengths[modal])
    if len(regular) < min_segments:
        if not _same_twice(symbols, calls):
            return None
    elif share < MATCH_SHARE:
        if calls < 3 or not _alike(symbols, ends, regular[-_COMPARED_SEGMENTS:]):
            return None
        other = int(regular[~equal[regular]][-1])
        if width > 1 and share < _WIDE_SHARE:
            return None
        if calls >= _ORDER_CALLS and not _same_order(symbols, ends, modal, other):
            return None
        calls = int(np.median(lengths[regular]))
        equal = np.abs(lengths - calls) <= tolerance(calls)
    good = np.flatnonzero(equal)
    explained = float(lengths[good].sum() / (len(symbols) - 1 - ends[good[0]]))
    own = int((np.unique(context[ends[modal] + 1 : ends[modal + 1] + 1], return_counts=True)[1] == 1).sum())
    run = _longest_run(lengths, calls)
    return Level(int(context[ends[modal]]), width, calls, ends, modal, own, len(good), run, share, explained)


def _longest_run(lengths: Ints, calls: int) -> int:
    """How many segments of about so many calls come at most one after the other without anything else in between.

    A segment that is longer without its neighbours being shorter, as where threads reorder calls, holds an extra call.
    """
    around = np.concatenate(([calls], lengths, [calls]))
    extra = (lengths > calls) & (around[:-2] >= calls) & (around[2:] >= calls)
    interrupted = np.flatnonzero((np.abs(lengths - calls) > tolerance(calls)) | extra)
    return int(np.diff(interrupted, prepend=-1, append=len(lengths)).max()) - 1


def _same_twice(symbols: Symbols, calls: int) -> bool:
    """Whether the last ``calls`` calls are those before them, one by one."""
    if len(symbols) < 2 * calls:
        return False
    return bool((symbols[-calls:] == symbols[-2 * calls : -calls]).mean() >= MATCH_SHARE)


def _same_order(symbols: Symbols, ends: Ints, one: int, other: int) -> bool:
    """Whether two segments have sequences of calls in common: long random ones have the same multisets, too."""
    known, counts = [], []
    for at in (one, other):
        found, count = np.unique(contexts(symbols[ends[at] + 1 : ends[at + 1] + 1], _ORDER_WIDTH), return_counts=True)
        known.append(found)
        counts.append(count)
    _, left, right = np.intersect1d(known[0], known[1], assume_unique=True, return_indices=True)
    common = np.minimum(counts[0][left], counts[1][right]).sum()
    return bool(common >= _ORDER_SHARE * max(counts[0].sum(), counts[1].sum()))


def _alike(symbols: Symbols, ends: Ints, compared: Ints) -> bool:
    """Whether the segments share 95 % of their calls with their median, taken as multisets."""
    pieces = [symbols[ends[i] + 1 : ends[i + 1] + 1] for i in compared.tolist()]
    known, ids = np.unique(np.concatenate(pieces), return_inverse=True)
    borders = np.cumsum([0] + [len(piece) for piece in pieces])
    counts = np.stack([np.bincount(ids[a:b], minlength=len(known)) for a, b in itertools.pairwise(borders)])
    middle = np.median(counts, axis=0)
    return bool(np.minimum(counts, middle).sum() >= MATCH_SHARE * np.maximum(counts, middle).sum())


def _pattern(found: _Found) -> Pattern:
    level, symbols = found.level, found.symbols
    segment = level.segment(symbols)
    known, count = np.unique(segment, return_counts=True)
    anchor, width = _last_of_iteration(symbols, level)
    return Pattern(
        anchor=anchor,
        width=width,
        calls=level.calls,
        fingerprint=int(segment.sum(dtype=np.uint64)),
        ragged=tuple(found.ragged.tolist()),
        once=frozenset(known[count == 1][:_KEPT_SYMBOLS].tolist()),
        members=frozenset(known[:_KEPT_SYMBOLS].tolist()),
    )


def _last_of_iteration(symbols: Symbols, level: Level) -> tuple[int, int]:
    """The context to cut at and its width: of those that occur once a period the one that came last to the stream.

    A single symbol that does so ends the iteration, most often with a reduction that the host waits for, so that its
    time is a steady one; a wider context begins with the last call of the iteration.
    """
    for width in (width for width in _WIDTHS if width <= level.width):
        context = contexts(symbols, width)
        once = _once_a_period(context, level)
        if len(once):
            begun = context[: level.ends[level.modal + 1] + 1]
            places = np.flatnonzero(contains(once, begun))
            _, first = np.unique(context[places], return_index=True)
            return int(context[places[first.max()]]), width
    return level.anchor, level.width


def _once_a_period(context: Symbols, level: Level) -> Symbols:
    """Contexts that occur once in the modal segment and once in one beside it."""
    beside = level.modal - 1 if level.modal else min(1, len(level.ends) - 2)
    once = []
    for at in (level.modal, beside):
        known, count = np.unique(context[level.ends[at] + 1 : level.ends[at + 1] + 1], return_counts=True)
        once.append(known[count == 1])
    return np.intersect1d(once[0], once[1], assume_unique=True)
