"""Communicators: the same hash on all members, different ones for different communicators."""

from __future__ import annotations

import numpy as np

from tests.hook.conftest import Runner
from tests.hook.ring_view import GH

# rows of program.c's identities, in its order
NAMES = ["world", "config", "scalable", "split0", "split1", "split2", "nested", "shrink", "again", "grow"]


def identities(runner: Runner, **variables: str) -> dict[str, np.void]:
    runner.program("identities", **variables)
    ring = runner.ring()
    rows = list(ring.comms)
    ring.path.unlink()
    names = [n for n in NAMES if not (n == "split1" and variables.get("COLOR") == "-1")]
    return dict(zip(names, rows, strict=True))


def test_members_agree_and_communicators_differ(runner: Runner) -> None:
    first = identities(runner, RANK="0")
    second = identities(runner, RANK="2", SHUFFLE="1")
    assert {n: r["hash"] for n, r in first.items()} == {n: r["hash"] for n, r in second.items()}
    assert len({int(r["hash"]) for r in first.values()}) == len(NAMES)
    assert (first["world"]["rank"], second["world"]["rank"]) == (0, 2)
    assert [int(second["split0"][k]) for k in ("rank", "size", "state")] == [1, 2, GH["COMM_LIVE"]]


def test_a_member_that_sits_a_split_out_stays_in_step(runner: Runner) -> None:
    member = identities(runner, RANK="0")
    absent = identities(runner, RANK="1", COLOR="-1")
    other = identities(runner, RANK="2", COLOR="7")
    assert member["split2"]["hash"] == absent["split2"]["hash"] == other["split2"]["hash"]
    assert other["split1"]["hash"] != member["split1"]["hash"]
    assert member["world"]["children"] == absent["world"]["children"] == 3


def test_parents(runner: Runner) -> None:
    rows = identities(runner, RANK="0")
    assert rows["nested"]["parent"] == rows["split0"]["hash"]
    assert {int(rows[n]["parent"]) for n in ("split0", "split1", "shrink", "grow")} == {int(rows["world"]["hash"])}
    assert rows["world"]["parent"] == 0 and rows["shrink"]["made_by"] == GH["OP_COMM_SHRINK"]


def test_growing_members_without_the_id_are_tied_by_the_alias(runner: Runner) -> None:
    root = identities(runner, RANK="0")
    plain = identities(runner, RANK="1", NO_ID="1")
    assert root["grow"]["hash"] != plain["grow"]["hash"] == root["grow"]["alias"] == plain["grow"]["alias"]


def test_a_reused_pointer_is_another_communicator(runner: Runner) -> None:
    assert "same pointer: 1" in runner.program("reuse")
    ring = runner.ring()
    first, second = ring.comms
    assert first["hash"] != second["hash"] and first["state"] == second["state"] == GH["COMM_GONE"]
    calls = ring.records[ring.records["op"] == GH["OP_ALL_REDUCE"]]
    assert list(calls["comm"]) == [first["hash"], second["hash"]] and list(calls["seq"]) == [0, 0]


def test_more_communicators_than_the_table_shows(runner: Runner) -> None:
    runner.program("many", COMMS="600")
    ring = runner.ring()
    assert ring.hook_flags == GH["FLAG_COMMS_FULL"] and len(ring.comms) == 512
    calls = ring.records[ring.records["op"] == GH["OP_ALL_REDUCE"]]
    assert len(set(calls["comm"])) == 600 and len(ring.counts) == 600


def test_the_table_is_used_again(runner: Runner) -> None:
    runner.program("many", COMMS="2000", DESTROY="1")
    ring = runner.ring()
    assert ring.hook_flags == 0 and (ring.comms["state"] == GH["COMM_GONE"]).all()


def test_several_ranks_in_one_process(runner: Runner) -> None:
    runner.program("all_devices")
    ring = runner.ring()
    first, second = ring.comms
    assert first["hash"] == second["hash"]
    assert [(int(r["rank"]), int(r["size"]), int(r["device"])) for r in (first, second)] == [(0, 2, 5), (1, 2, 6)]
    assert ring.hook_flags == GH["FLAG_UNCOUNTED"]


def test_a_communicator_that_came_past_the_hook_is_adopted(runner: Runner) -> None:
    # no communicator was made: inert, the call goes through
    assert "result 0" in runner.program("unknown")
    assert runner.rings() == []
