"""The job's comment at the step's end: added to what is there, and given up where Slurm is slow or refuses."""

import threading

import pytest

from greyhound.control.comment import CommentError, CommentWriter
from greyhound.control.summary import Summary

ONE = Summary(1, 60.0, 1.5, watched=True)


def test_ours_is_added_to_what_is_there() -> None:
    written: list[str] = []
    writer = CommentWriter(lambda: "mine; greyhound: 1 fail-slow, 60 s, 1.20x; theirs", written.append)
    writer.begin()
    writer.write(ONE)
    writer.wait(10)
    assert written == ["mine; theirs; greyhound: 2 fail-slow, 2 min, 1.50x"]


@pytest.mark.parametrize("place", ["read", "write"])
def test_a_refusal_is_a_line_in_the_log(place: str, caplog: pytest.LogCaptureFixture) -> None:
    def refuse(*_: str) -> str:
        raise CommentError("Job has already finished")

    writer = CommentWriter(refuse, list) if place == "read" else CommentWriter(lambda: "", refuse)  # type: ignore[arg-type]
    writer.write(ONE)
    writer.wait(10)
    assert "Job has already finished" in caplog.text


def test_a_slurm_that_hangs_is_not_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    answer = threading.Event()

    def hang() -> str:
        answer.wait(60)
        return ""

    written: list[str] = []
    writer = CommentWriter(hang, written.append)
    writer.write(ONE)
    writer.wait(0.05)
    assert "wasn't written in time" in caplog.text and not written
    answer.set()
    writer.wait(10)
    assert len(written) == 1


def test_nothing_begun_is_nothing_to_wait_for() -> None:
    CommentWriter(lambda: "", list).wait(10)  # type: ignore[arg-type]
