"""Levels of repetition in a call stream: layers in micro-batches in iterations; which of them is the iteration.

The iteration is the coarsest verified level, unless that one is only a number of finer ones with something in between
that happens every few iterations: a logging call or an evaluation.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from greyhound.detect.contexts import Symbols

Ints = NDArray[np.int64]

_LOG_CALLS, _FEW_CALLS = 1, 3
_BATCH_SYMBOLS, _LONE_CALLS = 2, 2
_LOG_STEP, _MAX_MICRO_BATCHES = 5, 64
_MAIN_EXPLAINED, _ALL_EQUAL, _LESS_EQUAL, _COMPARABLE_CALLS = 0.5, 0.95, 0.5, 4
_BATCHES_IN_A_ROW = 5
_STRAYED, _STRAYED_OF = 2, 20
_PAUSE, _SAME_PAUSE, _LONGER_PAUSE, _DISTINCT_PAUSE = 3.0, 1.5, 2.5, 1.5
_PAUSES_SEEN = 8
_PAUSE_SHARE, _PAUSE_CALLS = 0.2, 1 << 16  # in all but this share of the segments; looked at at most
_EVALUATION_SHARE = 0.3  # of the calls in an evaluation that an iteration has, too


@dataclass(frozen=True)
class Level:
    """A repetition: segments of about ``calls`` calls between the positions ``ends``.

    anchor: context hash found at the ends, width: of that context. modal: a segment that is like most others. own:
    contexts that occur once in it. good: how many segments are alike, run: at most one after the other;
    equal: the share of the regular ones that are the same; explained: the share of the calls that are in good ones.
    """

    anchor: int
    width: int
    calls: int
    ends: Ints
    modal: int
    own: int
    good: int
    run: int
    equal: float
    explained: float

    def segment(self, symbols: Symbols) -> Symbols:
        """The symbols of the modal segment."""
        return symbols[self.ends[self.modal] + 1 : self.ends[self.modal + 1] + 1]


@dataclass(frozen=True)
class _Extras:
    """What a coarse segment holds beyond ``repeats`` fine ones."""

    repeats: int
    surplus: int  # calls of the fine level's own symbols
    foreign_symbols: int
    foreign_calls: int
    places: int  # where foreign ones are close together
    span: int  # calls from the first foreign one to the last at each place, cyclic
    inside: int  # of these such as the fine level has, too
    once_a_batch: bool  # all foreign symbols are equally many
    lone_symbols: int
    lone_calls: int  # foreign ones that are few among many others: left out above


def iteration_level(symbols: Symbols, t_ns: Ints, levels: list[Level]) -> Level:
    """The iteration among verified levels (finest first)."""
    # Evaluations and logs that fall together now and then make a coarse level whose segments are rarely the same.
    # Of very short segments none counts as regular that isn't the same, so they say nothing about the others.
    main = [level.equal for level in levels if level.explained >= _MAIN_EXPLAINED and level.calls >= _COMPARABLE_CALLS]
    while max(main, default=0.0) >= _ALL_EQUAL and levels[-1].equal < _LESS_EQUAL:
        levels = levels[:-1]
    chosen = levels[-1]
    for finer in reversed(levels[:-1]):
        if is_multiple(symbols, t_ns, finer, chosen):
            chosen = finer
    return chosen


def is_multiple(symbols: Symbols, t_ns: Ints, fine: Level, coarse: Level) -> bool:
    """Whether ``coarse`` is a number of iterations ``fine``, with at most a log or an evaluation in between."""
    extras = _extras(fine.segment(symbols), coarse.segment(symbols))
    if extras.repeats < 2:
        return False
    if extras.foreign_calls == 0 or (extras.lone_calls > _LONE_CALLS and extras.lone_symbols > 1):
        return extras.foreign_calls == extras.surplus == 0
    few = 1 <= extras.foreign_calls <= _FEW_CALLS
    between = extras.foreign_symbols <= _BATCH_SYMBOLS and 2 * extras.places <= extras.repeats
    if (few or between) and extras.surplus <= _strayed(fine.calls):
        stepped = step_in_each(symbols, t_ns, fine, coarse)
        if stepped or (few and stepped is not None):
            return stepped
    if extras.surplus <= max(_strayed(fine.calls), 1) and extras.foreign_symbols <= _BATCH_SYMBOLS:
        if extras.foreign_calls <= _LOG_CALLS:
            # Both a log and the norm of accumulated gradients look like this; people log every 10, not 8 or 16.
            return _is_round(extras.repeats)
        in_a_row = extras.span <= extras.foreign_calls + 2 and extras.places * _BATCHES_IN_A_ROW <= extras.foreign_calls
        return in_a_row and extras.foreign_calls >= _BATCHES_IN_A_ROW * extras.foreign_symbols
    rest = coarse.calls - extras.span - extras.repeats * fine.calls
    forward_only = extras.inside >= _EVALUATION_SHARE * extras.span and 2 * extras.surplus >= extras.inside
    batch_calls = extras.span * extras.foreign_symbols / extras.foreign_calls
    return (
        forward_only and extras.once_a_batch and batch_calls <= fine.calls and abs(rest) <= extras.places * fine.calls
    )


def step_in_each(symbols: Symbols, t_ns: Ints, fine: Level, coarse: Level) -> bool | None:
    """Whether the pause at the place of a few extra calls is in each of the fine segments, or (False) only there.

    A pause in each is the optimiser's step: an iteration is the fine level, and the calls are a log. None: not clear.
    One longer than a fine segment is a checkpoint's, if each has its own. Medians over the last coarse segments: the
    pause of a single one may be anything.
    """
    own_symbols = np.unique(fine.segment(symbols))
    seen = [
        pauses
        for at in range(max(len(coarse.ends) - 1 - _PAUSES_SEEN, 0), len(coarse.ends) - 1)
        if (pauses := _pauses(symbols, t_ns, own_symbols, fine.calls, int(coarse.ends[at]), int(coarse.ends[at + 1])))
    ]
    if not seen:
        return None
    usual, here, elsewhere = np.median(np.array(seen), axis=0)
    fine_ns = float(np.median(np.diff(t_ns[fine.ends])))
    if elsewhere >= _PAUSE * usual and (here <= _SAME_PAUSE * elsewhere or here > fine_ns):
        return True
    if here >= _PAUSE * usual and here >= _LONGER_PAUSE * elsewhere:
        return False
    return None


def has_pause(t_ns: Ints, level: Level) -> bool:
    """Whether one gap is far longer than all others and at the same place in nearly each segment.

    Before the first iteration is over the optimiser's step isn't in most of the segments, so they aren't its parts.
    """
    lengths = np.diff(level.ends)
    alike = np.flatnonzero(lengths == level.calls)[-max(min(_PAUSES_SEEN, _PAUSE_CALLS // level.calls), 3) :]
    if level.calls < 2 or len(alike) < 3:
        return False
    places = level.ends[alike][:, None] + np.arange(level.calls)
    gap = np.quantile(t_ns[places + 1] - t_ns[places], _PAUSE_SHARE, axis=0)
    longest = int(np.argmax(gap))
    others = np.delete(gap, longest)
    return bool(gap[longest] >= max(_PAUSE * np.median(others), _DISTINCT_PAUSE * others.max(), 1))


def _pauses(
    symbols: Symbols, t_ns: Ints, own_symbols: Symbols, fine_calls: int, begin: int, end: int
) -> tuple[float, float, float] | None:
    """ns between calls in a coarse segment: usual, at the place of the extra calls, and where the same is elsewhere."""
    part = slice(begin + 1, end + 1 + fine_calls)  # with what follows an extra call at the very end
    segment, gap = symbols[part], np.diff(t_ns[part])
    own = np.flatnonzero(np.isin(segment, own_symbols))
    apart = np.flatnonzero(np.diff(own) > 1)
    if len(apart) == 0:
        return None
    before, after = int(own[apart[0]]), int(own[apart[0] + 1])
    same = np.arange(before % fine_calls, before, fine_calls)
    same = same[(segment[same] == segment[before]) & (segment[same + 1] == segment[after])]
    if len(same) == 0:
        return None
    usual = float(np.median(gap))
    return usual, float(gap[before:after].sum()) - usual * (after - before - 1), float(np.median(gap[same]))


def _strayed(calls: int) -> int:
    """How many calls of a segment of so many may lie in the next one, reordered between threads."""
    return min(_STRAYED, calls // _STRAYED_OF)


def _is_round(number: int) -> bool:
    """Whether people log so often: every 5, 10, 15 ... 60, 100, 150 ..."""
    return number % (_LOG_STEP if number <= _MAX_MICRO_BATCHES else 10 * _LOG_STEP) == 0


def _extras(fine: Symbols, coarse: Symbols) -> _Extras:
    known, fine_count = np.unique(fine, return_counts=True)
    place = np.minimum(np.searchsorted(known, coarse), len(known) - 1)
    is_known = known[place] == coarse
    coarse_count = np.bincount(place[is_known], minlength=len(known))
    repeats = int((coarse_count // fine_count).min())
    if int(np.maximum((repeats + 1) * fine_count - coarse_count, 0).sum()) <= _strayed(len(fine)):
        repeats += 1  # but for calls reordered across the ends
    surplus = int(np.maximum(coarse_count - repeats * fine_count, 0).sum())
    beyond = np.flatnonzero(~is_known)
    foreign = beyond[_frequent(coarse[beyond])]
    if len(foreign) == 0:
        return _Extras(repeats, surplus, 0, 0, 0, 0, 0, False, 0, len(beyond))
    gaps = np.diff(foreign, append=foreign[0] + len(coarse))
    wide = gaps[gaps > min(len(fine), gaps.max() - 1)]
    span = len(coarse) - int((wide - 1).sum())
    often = np.unique(coarse[foreign], return_counts=True)[1]
    equal = bool(np.ptp(often) <= 1)
    return _Extras(
        repeats=repeats,
        surplus=surplus,
        foreign_symbols=len(often),
        foreign_calls=len(foreign),
        places=len(wide),
        span=span,
        inside=span - len(foreign),
        once_a_batch=equal,
        lone_symbols=len(np.unique(coarse[beyond])) - len(often),
        lone_calls=len(beyond) - len(foreign),
    )


def _frequent(symbols: Symbols) -> NDArray[np.bool_]:
    """All but the lone ones among frequent ones: a log beside an evaluation."""
    _, which, count = np.unique(symbols, return_inverse=True, return_counts=True)
    most = count.max(initial=0)
    frequent: NDArray[np.bool_] = count[which] * _BATCHES_IN_A_ROW > most
    if most > 2:
        frequent &= count[which] > 1
    return frequent
