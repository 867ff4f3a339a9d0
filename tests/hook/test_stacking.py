"""Other preload tools, in front of the hook and behind it: each sees what it would see without the hook, once."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.hook.conftest import NATIVE, Built, Runner, shared

KINDS = {"next": [], "profiled": ["-DTO_PROFILED"], "both": ["-DBOTH"]}
EVERY = ("every_operation", "ncclAllReduce", "ncclBcast", "ncclBroadcast")


@pytest.fixture(scope="session")
def tools(built: Built) -> dict[str, Path]:
    """Tools by kind and place: "next1" forwards by RTLD_NEXT and calls itself first."""
    return {
        f"{kind}{place}": shared(
            built.root / f"lib{kind}{place}.so", *flags, f'-DNAME="{kind}{place}"', NATIVE / "tool.c", "-ldl"
        )
        for kind, flags in KINDS.items()
        for place in (1, 2)
    }


def seen(runner: Runner, *command: object, preload: list[Path]) -> str:
    """What NCCL and the tools saw, the list's separators being colon and blank in turn."""
    joined = "".join(f"{path}{separator}" for path, separator in zip(preload, ":  ", strict=False))
    return runner.clean(*command, preload=joined[:-1])


def check(runner: Runner, *command: object, tools: list[Path]) -> None:
    """With the hook at every place of the list, all is as without it, and the hook has each call once."""
    expected = seen(runner, *command, preload=tools)
    assert "saw" in expected and not runner.rings(), expected
    for place in range(len(tools) + 1):
        preload = [*tools[:place], runner.built.hook, *tools[place:]]
        assert seen(runner, *command, preload=preload) == expected, preload
        ring = runner.ring()
        assert ring.ops().count("all_reduce") == 2 and ring.ops().count("broadcast") == 3, preload
        ring.path.unlink()


@pytest.mark.parametrize("kind", KINDS)
def test_one_tool(runner: Runner, tools: dict[str, Path], kind: str) -> None:
    check(runner, runner.built.program, *EVERY, tools=[tools[f"{kind}1"]])


@pytest.mark.parametrize(("first", "second"), list(itertools.product(KINDS, KINDS)))
def test_two_tools(runner: Runner, tools: dict[str, Path], first: str, second: str) -> None:
    check(runner, runner.built.program, *EVERY, tools=[tools[f"{first}1"], tools[f"{second}2"]])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("library", ["torchlike", "static"])
def test_a_tool_in_front_of_the_hook_where_nccl_is_loaded_local(
    runner: Runner, tools: dict[str, Path], kind: str, library: str
) -> None:
    """As in Python. Without the hook such a tool would not find NCCL at all."""
    command = [runner.built.host, getattr(runner.built, library), *EVERY]
    out = seen(runner, *command, preload=[tools[f"{kind}1"], runner.built.hook])
    assert out.startswith("ncclAllReduce 1\nncclBcast 1\nncclBroadcast 2\n") and f"{kind}1 saw 2" in out
    assert runner.ring().ops().count("all_reduce") == 2 and runner.ring().ops().count("broadcast") == 3


def test_two_tools_in_front_of_the_hook_where_nccl_is_inside_a_library(runner: Runner, tools: dict[str, Path]) -> None:
    command = [runner.built.host, runner.built.static, *EVERY]
    out = seen(runner, *command, preload=[tools["both1"], tools["both2"], runner.built.hook])
    assert out.startswith("ncclAllReduce 1\nncclBcast 1\nncclBroadcast 2\n")
    assert "both1 saw 2" in out and "both2 saw 2" in out


def test_calls_of_the_profiling_names_are_seen_as_well(runner: Runner, tools: dict[str, Path]) -> None:
    """A tool that forwards to pncclX behind the hook comes back to it: forwarded, and recorded once."""
    command = [runner.built.host, runner.built.torchlike, *EVERY]
    out = seen(runner, *command, preload=[runner.built.hook, tools["profiled1"]])
    assert out == "ncclAllReduce 1\nncclBcast 1\nncclBroadcast 2\nprofiled1 saw 2\n"
    assert runner.ring().ops().count("all_reduce") == 2
