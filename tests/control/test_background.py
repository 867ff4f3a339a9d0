"""A computation in a thread: its result, and what is left where it fails."""

import threading

from greyhound.control.background import Background

TIMEOUT_S = 20.0


def test_the_result_is_there_when_it_is_over():
    let_go = threading.Event()
    made = Background("gh-test", lambda: let_go.wait(TIMEOUT_S))
    assert not made.is_over and made.result is None
    let_go.set()
    made.wait(TIMEOUT_S)
    assert made.is_over and made.result is True


def test_where_no_thread_is_to_be_had_it_is_over_without_a_result(monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    made = Background("gh-test", lambda: 1)
    made.wait(TIMEOUT_S)
    assert made.is_over and made.result is None
