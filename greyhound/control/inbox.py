"""Messages as they come from the bus: what can't be read is logged, unknown kinds once each, and left out."""

import logging

from greyhound.control.messages import Message, MessageError, UnknownKindError, decode

log = logging.getLogger(__name__)


class Inbox:
    """Decodes the messages of one direction."""

    def __init__(self) -> None:
        self._unknown: set[str] = set()

    def open(self, text: str) -> Message | None:
        """The message, or None for one of an unknown kind or one that isn't valid."""
        try:
            return decode(text)
        except UnknownKindError as error:
            if error.kind not in self._unknown:
                self._unknown.add(error.kind)
                log.info("ignored: %s", error)
        except MessageError as error:
            log.warning("refused: %s", error)
        return None
