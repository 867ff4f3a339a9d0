"""How a child ended is told apart: one that tidied up and failed was not told to end. What one answers is read."""

import pytest

pytestmark = pytest.mark.sanitizer


@pytest.mark.parametrize(
    ("script", "end"), [("exit 0", "early"), ("exit 1", "failed"), ("kill -KILL $$", "failed"), ("exit 126", "failed")]
)
def test_an_end_before_we_asked(unit, script, end):
    assert unit("end", script).lines == [end]


def test_a_child_answers_or_is_given_up(unit):
    assert unit("ask", "yes").lines == ["0 yes"]
    assert unit("ask", "more than fits").lines == ["0 more th"]
    assert unit("ask", "hang").lines == ["-1 "]
