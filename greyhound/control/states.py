"""The job's state machine: which states there are and which may follow which. Pure.

Up to SUSPECT they are driven by the tracking alone, MUTED by the site or the owner; PROFILE, VALIDATE and MITIGATE
belong to the loop of one fail-slow (profiling, validation, mitigation) and are reached from SUSPECT.
"""

from enum import StrEnum


class State(StrEnum):
    """What the job is in, as `greyhound status` shows it."""

    STARTING = "starting"
    WAITING = "waiting"
    NOT_INTERCEPTED = "not_intercepted"
    TRACKING = "tracking"
    SUSPECT = "suspect"
    PROFILE = "profile"
    VALIDATE = "validate"
    MITIGATE = "mitigate"
    MUTED = "muted"
    UNMONITORED = "unmonitored"
    ENDED = "ended"


_ANYTIME = {State.MUTED, State.UNMONITORED, State.ENDED}
# The last tracked rank may end or fall silent in every state, and what the other nodes say then counts.
_NOTHING_TRACKED = {State.WAITING, State.NOT_INTERCEPTED}
_NEXT: dict[State, set[State]] = {
    State.STARTING: {State.WAITING, State.TRACKING, State.NOT_INTERCEPTED},
    State.WAITING: {State.TRACKING, State.NOT_INTERCEPTED},
    State.NOT_INTERCEPTED: {State.WAITING, State.TRACKING},
    State.TRACKING: {State.SUSPECT, *_NOTHING_TRACKED},
    State.SUSPECT: {State.TRACKING, State.PROFILE, *_NOTHING_TRACKED},
    State.PROFILE: {State.TRACKING, State.SUSPECT, State.VALIDATE, State.MITIGATE, *_NOTHING_TRACKED},
    State.VALIDATE: {State.TRACKING, State.SUSPECT, State.MITIGATE, *_NOTHING_TRACKED},
    State.MITIGATE: {State.TRACKING, State.SUSPECT, *_NOTHING_TRACKED},
    State.MUTED: {State.TRACKING, *_NOTHING_TRACKED},
    State.UNMONITORED: {State.TRACKING, *_NOTHING_TRACKED},
    State.ENDED: set(),
}


class TransitionError(ValueError):
    """A change of state that isn't allowed."""


def allowed(old: State, new: State) -> bool:
    """Whether `new` may follow `old`."""
    return new in _NEXT[old] or (old is not State.ENDED and new in _ANYTIME and new is not old)


class StateMachine:
    """The current state and why it was entered."""

    def __init__(self) -> None:
        self.state = State.STARTING
        self.reason = ""

    def to(self, new: State, reason: str = "") -> bool:
        """Go to `new`; False if already there (the reason is renewed), TransitionError if it can't follow."""
        if new is self.state:
            self.reason = reason
            return False
        if not allowed(self.state, new):
            raise TransitionError(f"{self.state} can't be followed by {new}")
        self.state, self.reason = new, reason
        return True
