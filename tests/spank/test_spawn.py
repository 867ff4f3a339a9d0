"""How a child ended is told apart: one that tidied up and failed was not told to end."""

import pytest

pytestmark = pytest.mark.sanitizer


@pytest.mark.parametrize(
    ("script", "end"), [("exit 0", "early"), ("exit 1", "failed"), ("kill -KILL $$", "failed"), ("exit 126", "failed")]
)
def test_an_end_before_we_asked(unit, script, end):
    assert unit("end", script).lines == [end]
