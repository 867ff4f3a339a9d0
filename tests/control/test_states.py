"""The job's states follow the table."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greyhound.control.states import State, StateMachine, TransitionError, allowed


@given(st.lists(st.sampled_from(list(State)), max_size=20))
def test_only_allowed_changes_happen_and_ended_is_the_end(wanted):
    machine = StateMachine()
    for new in wanted:
        old = machine.state
        if new is old or allowed(old, new):
            assert machine.to(new) is (new is not old)
            assert machine.state is new
        else:
            with pytest.raises(TransitionError, match=new.value):
                machine.to(new)
            assert machine.state is old
        assert old is not State.ENDED or machine.state is State.ENDED


def test_the_road_of_a_fail_slow():
    machine = StateMachine()
    for state in (State.WAITING, State.TRACKING, State.SUSPECT, State.PROFILE, State.VALIDATE, State.MITIGATE):
        assert machine.to(state)
    assert machine.to(State.TRACKING)
    assert not allowed(State.WAITING, State.SUSPECT)
