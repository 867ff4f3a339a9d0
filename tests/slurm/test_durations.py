"""Slurm's durations and points in time: the printed and the typed grammar, and total parsers."""

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greyhound.slurm.durations import (
    NoDuration,
    TimeTextError,
    parse_moment,
    parse_printed,
    parse_typed,
    parse_typed_moment,
    print_duration,
)

NOW = datetime(2026, 12, 1, 12, 30, 15)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1-02:03:04", 93_784),
        ("02:03:04", 7_384),
        ("03:04.567", 184.567),
        ("4:00", 240),
        ("00:00:00", 0),
        ("365-00:00:00", 365 * 86_400),
        ("UNLIMITED", NoDuration.UNLIMITED),
        ("Partition_Limit", NoDuration.PARTITION_LIMIT),
        ("INVALID", NoDuration.UNKNOWN),
        ("", NoDuration.UNKNOWN),
    ],
)
def test_printed(text, seconds):
    assert parse_printed(text) == seconds


@pytest.mark.parametrize("text", ["4", "1-2", "-1", "00:61:00", "1:2:3:4", "abc", "١:٠٠", "1-02:03:04x", "00:00:60"])
def test_what_slurm_never_prints_is_refused(text):
    with pytest.raises(TimeTextError, match="no duration"):
        parse_printed(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("4", 240),
        ("4:00", 240),
        ("1:02:03", 3_723),
        ("1-2", 93_600),
        ("1-2:3", 93_780),
        ("1-2:3:4", 93_784),
        ("90:00", 5_400),
        ("UNLIMITED", NoDuration.UNLIMITED),
        ("infinite", NoDuration.UNLIMITED),
    ],
)
def test_typed(text, seconds):
    assert parse_typed(text) == seconds


@pytest.mark.parametrize("text", ["", "-5", "1:2:3:4", "one", "1-", "4.5", "999999-1", "1d"])
def test_bad_typed_durations_name_the_forms(text):
    with pytest.raises(TimeTextError, match="MINUTES"):
        parse_typed(text)


@given(st.integers(0, 10_000 * 86_400))
def test_what_is_printed_is_read_back(seconds):
    assert parse_printed(print_duration(seconds)) == seconds


@given(st.text(max_size=40))
def test_the_parsers_are_total(text):
    for parse in (parse_printed, parse_typed, parse_moment, lambda t: parse_typed_moment(t, NOW)):
        try:
            parse(text)
        except TimeTextError:
            continue


def test_moments():
    assert parse_moment("2026-11-30T08:00:00") == datetime(2026, 11, 30, 8)
    assert parse_moment("Unknown") is None
    with pytest.raises(TimeTextError):
        parse_moment("2026-13-40T08:00:00")


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-30", datetime(2026, 11, 30)),
        ("2026-11-30T08:00", datetime(2026, 11, 30, 8)),
        ("now", NOW),
        ("now-7days", NOW - timedelta(days=7)),
        ("now-90", NOW - timedelta(seconds=90)),
        ("today", datetime(2026, 12, 1)),
        ("yesterday", datetime(2026, 11, 30)),
    ],
)
def test_typed_moments(text, moment):
    assert parse_typed_moment(text, NOW) == moment


@pytest.mark.parametrize("text", ["2026-02-30", "tomorrow-ish", "now-999999999weeks", "", "now-1fortnight"])
def test_impossible_moments_name_the_forms(text):
    with pytest.raises(TimeTextError):
        parse_typed_moment(text, NOW)
