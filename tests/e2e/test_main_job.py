"""The main job with real daemons: what `make demo` shows, checked in the same way."""

from pathlib import Path

import pytest

from greyhound.sandbox import demo
from greyhound.sandbox.cluster import Sandbox

pytestmark = [pytest.mark.cluster, pytest.mark.training]


def test_an_injected_fail_slow_is_found_and_its_recovery_too(sandbox: Sandbox, tmp_path: Path) -> None:
    run = demo.Demo(sandbox, gpu="n3:0", speed=0.6, steps=62, work=tmp_path)
    assert demo.play(run) == []
