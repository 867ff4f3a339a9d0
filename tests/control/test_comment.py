"""The job's comment at the step's end: added to what is there, and given up where Slurm is slow or refuses."""

import threading

import pytest

from greyhound.control.comment import CommentError, CommentWriter
from greyhound.control.summary import NOT_TRACKED, Summary

ONE = Summary(1, 60.0, 1.5, watched=True)


def test_ours_is_added_to_what_is_there() -> None:
    written: list[str] = []
    writer = CommentWriter(lambda: "mine; greyhound: 1 fail-slow, 60 s, 1.20x; theirs", written.append)
    writer.update(ONE)
    writer.wait(10)
    assert written == ["mine; theirs; greyhound: 2 fail-slow, 2 min, 1.50x"]


def test_what_this_step_said_before_is_replaced_and_others_words_are_kept() -> None:
    comment = ["greyhound: 1 fail-slow, 60 s, 1.20x"]
    writer = CommentWriter(lambda: comment[0], lambda text: comment.__setitem__(0, text))
    writer.update(Summary(watched=True))
    writer.wait(10)
    assert comment == ["greyhound: 1 fail-slow, 60 s, 1.20x"]
    comment[0] = "new; " + comment[0]
    for _ in range(3):
        writer.update(ONE)
        writer.wait(10)
    assert comment == ["new; greyhound: 2 fail-slow, 2 min, 1.50x"]


def test_at_the_end_nothing_is_left_to_do_where_nothing_changed() -> None:
    written: list[str] = []
    writer = CommentWriter(lambda: "", written.append)
    for _ in range(2):
        writer.update(Summary(watched=True))
        writer.wait(10)
    writer.update(Summary(unmonitored=NOT_TRACKED))
    writer.wait(0)
    assert written == ["greyhound: no fail-slow"]


@pytest.mark.parametrize("place", ["read", "write"])
def test_a_refusal_is_a_line_in_the_log(place: str, caplog: pytest.LogCaptureFixture) -> None:
    def refuse(*_: str) -> str:
        raise CommentError("Job has already finished")

    writer = CommentWriter(refuse, list) if place == "read" else CommentWriter(lambda: "", refuse)  # type: ignore[arg-type]
    writer.update(ONE)
    writer.wait(10)
    assert "Job has already finished" in caplog.text


def test_a_slurm_that_hangs_is_not_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    answer = threading.Event()

    def hang() -> str:
        answer.wait(60)
        return ""

    written: list[str] = []
    writer = CommentWriter(hang, written.append)
    writer.update(ONE)
    writer.wait(0.05)
    assert "wasn't written in time" in caplog.text and not written
    answer.set()
    writer.wait(10)
    assert len(written) == 1


def test_nothing_begun_is_nothing_to_wait_for() -> None:
    CommentWriter(lambda: "", list).wait(10)  # type: ignore[arg-type]
