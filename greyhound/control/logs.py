"""The run's own log file, `greyhound.log` beside the events; every process of ours appends to it."""

import logging
import os
import sys

from greyhound.control.arguments import NodeArguments
from greyhound.control.files import open_to_append
from greyhound.control.record import Record

FORMAT = "%(asctime)s %(levelname)s node%(node)s %(name)s[%(process)d]: %(message)s"


class _WithNode(logging.Filter):
    def __init__(self, index: int) -> None:
        super().__init__()
        self._index = index

    def filter(self, record: logging.LogRecord) -> bool:
        record.node = self._index
        return True


def log_to(record: Record, arguments: NodeArguments) -> None:
    """Send this process's log lines to the record folder, to stderr where that can't be opened."""
    path = record.folder / "greyhound.log"
    try:
        # Warnings and tracebacks of ours belong here too, not into the job's output.
        descriptor = open_to_append(path)
        os.dup2(descriptor, sys.stderr.fileno())
        os.close(descriptor)
    except OSError as error:
        print(f"greyhound: log {path}: {error.strerror}", file=sys.stderr)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(FORMAT))
    handler.addFilter(_WithNode(arguments.node_index))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.raiseExceptions = False  # a full disk is no reason for a traceback
