"""What `greyhound inject` asks of a training itself: late training data, slow checkpoints (test bed only)."""

import os
import time
from pathlib import Path

from greyhound.sandbox.errors import SandboxError
from greyhound.sandbox.page import VARIABLE, StandinPage
from greyhound.sandbox.page_users import gpu_of


class Slowed:
    """This rank's delays, read from the stand-in page at every use; none where there is no page."""

    def __init__(self, local_rank: int) -> None:
        self._page = _open()
        environment = {**os.environ, "LOCAL_RANK": str(local_rank)}
        self._gpu = gpu_of(environment, list(self._page.gpus())) if self._page else ""

    def read_data(self) -> None:
        """As long as the reading of training data takes longer than it should."""
        if self._page and self._gpu:
            time.sleep(self._page.inputs()[self._gpu])

    def write_checkpoint(self) -> None:
        """As long as the writing of a checkpoint takes longer than it should."""
        if self._page:
            time.sleep(self._page.storage_s())


def _open() -> StandinPage | None:
    path = os.environ.get(VARIABLE)
    try:
        return StandinPage.open(Path(path), to_read=True) if path else None
    except SandboxError:
        return None  # the stand-in says so itself
