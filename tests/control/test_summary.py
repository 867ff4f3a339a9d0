"""The line in Slurm's comments: what it says, that it is read back, and that nobody else's text is touched."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greyhound.control.summary import JOINT, Gathered, Summary, component_name, is_ours, merge, parse

NAMES = st.text("abcn0123456789-.:", min_size=1, max_size=20)


def possible(made: Summary) -> Summary:
    """What no fail-slow has, and what a job that wasn't watched has."""
    if not made.fail_slows:
        made = replace(made, slow_s=0.0, worst=0.0)
    return made if made.watched or made.fail_slows else replace(made, strategies=(), components=())


SUMMARIES = st.builds(
    Summary,
    fail_slows=st.integers(0, 10_000),
    slow_s=st.floats(0, 1e8),
    worst=st.floats(0, 1e5),
    strategies=st.lists(st.sampled_from(["S1", "S2", "S3", "S4"]), unique=True, max_size=4).map(sorted).map(tuple),
    components=st.lists(st.builds(component_name, NAMES, NAMES), unique=True, max_size=3).map(tuple),
    unmonitored=st.text(max_size=90),
    watched=st.booleans(),
).map(possible)
FOREIGN = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        ["greyhound: please", "greyhound: ", "greyhound: 2 fail-slow", "a; b", "; ", "greyhound: no fail-slow, ü"]
    ),
)


@pytest.mark.parametrize(
    ("summary", "text"),
    [
        (Summary(2, 41 * 60.0, 1.34, ("S2", "S4"), ("n017 gpu3",), watched=True),
         "greyhound: 2 fail-slow, 41 min, 1.34x, S2 S4, n017 gpu3"),
        (Summary(watched=True), "greyhound: no fail-slow"),
        (Summary(unmonitored="no redis-server; (install it)"), "greyhound: unmonitored (no redis-server install it)"),
        (Summary(), "greyhound: unmonitored (no iteration was found)"),
        (Summary(1, 99.4, 1.5, watched=True), "greyhound: 1 fail-slow, 99 s, 1.50x"),
        (Summary(1, 360_000.0, 2.0, unmonitored="Redis died", watched=True),
         "greyhound: 1 fail-slow, 4 d, 2.00x, unmonitored (Redis died)"),
    ],
)  # fmt: skip
def test_the_line(summary: Summary, text: str) -> None:
    assert summary.text() == text


@given(SUMMARIES)
def test_what_is_printed_is_read_back(summary: Summary) -> None:
    found = parse(summary.text())
    assert found is not None
    assert found.text() == summary.text()
    assert found.fail_slows == summary.fail_slows
    assert found.watched == (summary.watched or bool(summary.fail_slows))


@given(FOREIGN, SUMMARIES, SUMMARIES)
def test_others_parts_are_kept_and_ours_is_there_once(comment: str, first: Summary, second: Summary) -> None:
    def others(text: str) -> list[str]:
        return [part for part in (text.split(JOINT) if text else []) if parse(part) is None]

    merged = merge(merge(comment, first), second)
    assert others(merged) == others(comment)
    assert sum(parse(part) is not None for part in merged.split(JOINT)) == 1
    last = parse(merged.split(JOINT)[-1])
    assert last is not None and last.fail_slows >= first.fail_slows + second.fail_slows


@given(SUMMARIES, SUMMARIES)
def test_steps_of_one_job_are_counted_together(first: Summary, second: Summary) -> None:
    both = parse(merge(merge("", first), second))
    assert both is not None
    assert both.fail_slows == first.fail_slows + second.fail_slows
    assert both.watched == (first.watched or second.watched or bool(both.fail_slows))
    assert set(both.strategies) == {*first.strategies, *second.strategies}
    assert both.worst == pytest.approx(max(first.worst, second.worst, 0), abs=0.006) or not both.fail_slows


@given(SUMMARIES, st.text(min_size=1, max_size=30))
def test_ours_is_only_what_is_nothing_else(summary: Summary, text: str) -> None:
    assert is_ours(summary.text()) and is_ours("") and is_ours(" ")
    assert not is_ours(f"{text.strip() or 'x'}{JOINT}{summary.text()}")
    assert not is_ours(f"{summary.text()}{JOINT}other")


def test_a_short_step_beside_a_watched_one_is_worth_no_word() -> None:
    short, watched, broken = Summary().text(), Summary(watched=True), Summary(unmonitored="Redis died")
    assert merge(short, watched) == "greyhound: no fail-slow"
    assert merge(watched.text(), Summary()) == "greyhound: no fail-slow"
    assert merge(merge(short, broken), watched) == "greyhound: no fail-slow, unmonitored (Redis died)"


def test_a_step_s_events_make_its_summary() -> None:
    gathered = Gathered()
    end = {
        "tracked": 8,
        "unmonitored": None,
        "episodes": [{"duration_s": 60.0, "slowdown": 1.5}, {"duration_s": None, "slowdown": 1.2}],
        "episodes_left_out": 1,
    }
    component = {"kind": "gpu", "node": "n017", "bus": "0000:1b:00.0", "rank": 5, "peer": None}
    assert not gathered.take({"kind": "start", "data": {}}) and not gathered.summary.says_something
    assert gathered.take({"kind": "tracking", "data": {"ranks": 8}})
    assert gathered.summary.text() == "greyhound: no fail-slow"
    assert gathered.take({"kind": "suspect", "episode": "e1", "data": {"duration_s": None, "slowdown": 1.5}})
    assert gathered.take({"kind": "recovered", "episode": "e1", "data": {"duration_s": 60.0, "slowdown": 1.5}})
    assert gathered.summary.text() == "greyhound: 1 fail-slow, 60 s, 1.50x"
    assert gathered.take({"kind": "verdict", "data": {}, "component": component})
    assert gathered.take({"kind": "action", "data": {"strategy": "S2"}})
    assert gathered.take({"kind": "end", "data": end})
    assert gathered.summary.text() == "greyhound: 3 fail-slow, 60 s, 1.50x, S2, n017 0000:1b:00.0"
