"""What is in the ring is what the program called."""

from __future__ import annotations

import subprocess
import time

import numpy as np
import pytest

from tests.hook.conftest import NATIVE, Built, Runner, Stepwise, compile_c
from tests.hook.ring_view import GH, Ring

SIZES = [1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1]
NONE = GH["NONE"]
# op, elements, dtype, redop, peer: the calls of program.c's every_operation, in its order
EVERY = [
    ("all_reduce", 10, 7, 2, -1), ("all_reduce", 11, 9, 0, -1), ("broadcast", 12, 0, NONE, 1),
    ("broadcast", 13, 1, NONE, 2), ("broadcast", 14, 8, NONE, 3), ("reduce", 15, 6, 4, 1), ("reduce", 16, 4, 1, 2),
    ("all_gather", 17, 2, NONE, -1), ("all_gather", 18, 3, NONE, -1), ("reduce_scatter", 19, 5, 3, -1),
    ("reduce_scatter", 20, 10, 0, -1), ("all_to_all", 21, 11, NONE, -1), ("all_to_all", 22, 7, NONE, -1),
    ("gather", 23, 7, NONE, 3), ("gather", 24, 7, NONE, 2), ("scatter", 25, 7, NONE, 1), ("scatter", 26, 7, NONE, 0),
    ("send", 27, 7, NONE, 2), ("recv", 28, 7, NONE, 3), ("put_signal", 29, 7, NONE, 1),
    ("signal", 0, NONE, NONE, 2), ("wait_signal", 0, NONE, NONE, -1),
]  # fmt: skip
LIFE = ["comm_finalize", "comm_revoke", "comm_suspend", "comm_resume", "comm_destroy"]


def test_every_operation_is_recorded_once_with_its_arguments(runner: Runner) -> None:
    before = time.monotonic_ns()
    runner.program("every_operation")
    ring = runner.ring()
    assert ring.ops() == ["comm_init", *(row[0] for row in EVERY), *LIFE]
    data = ring.records[1 : 1 + len(EVERY)]
    for record, (op, elements, dtype, redop, peer) in zip(data, EVERY, strict=True):
        size = SIZES[dtype] if dtype != NONE else 1
        found = (int(record["bytes"]), int(record["dtype"]), int(record["redop"]), int(record["peer"]))
        assert found == (elements * size, dtype, redop, peer), op
    assert list(data["seq"]) == list(range(len(EVERY)))
    assert len(set(data["comm"])) == 1 and set(data["group"]) == {0} and set(data["flags"]) == {0}
    assert (np.diff(ring.records["t_ns"].astype(np.int64)) > 0).all()
    assert before < ring.records["t_ns"][0] < time.monotonic_ns()


def test_nccl_is_called_as_often_as_without_the_hook(runner: Runner) -> None:
    names = ["ncclBroadcast", "ncclBcast", "ncclSend", "ncclGroupStart", "ncclReduceConfig", "ncclCommDestroy"]
    hooked = runner.program("every_operation", *names)
    plain = runner.program("every_operation", *names, LD_PRELOAD=None)
    assert hooked == plain and "ncclBroadcast 2" in hooked


def test_counters_of_issued_calls(runner: Runner) -> None:
    runner.program("groups")
    ring = runner.ring()
    world, inside, split = (int(c["hash"]) for c in ring.comms)
    collective, send, recv = GH["COUNT_COLLECTIVE"], GH["COUNT_SEND"], GH["COUNT_RECV"]
    assert ring.counts == {
        (world, collective, -1): 1,  # the second was in a simulated group, and taken back
        (inside, collective, -1): 1,
        (split, collective, -1): 2,
        (world, send, 1): 1,
        (world, recv, 1): 1,
    }
    assert ring.hook_flags == 0


def test_one_sided_traffic_is_flagged_as_uncounted(runner: Runner) -> None:
    runner.program("every_operation")
    assert runner.ring().hook_flags == GH["FLAG_UNCOUNTED"]


def test_counters_are_freed_with_their_communicator(runner: Runner) -> None:
    runner.program("many", COMMS="9000", DESTROY="1")
    ring = runner.ring()
    assert ring.counts == {} and ring.hook_flags == 0 and len(ring.ops()) == 27000


def test_groups(runner: Runner) -> None:
    runner.program("groups")
    ring = runner.ring()
    expected = ["comm_init", "comm_init", "comm_split", "comm_split", "group", "all_reduce", "all_reduce"]
    expected += ["send", "recv", "group", "all_reduce", "all_reduce", "group", "all_reduce", "group_simulate"]
    assert ring.ops() == expected
    r = ring.records
    assert list(r["group"]) == [0, 1, 1, 1, 1, 0, 0, 2, 2, 2, 3, 3, 3, 4, 4]
    in_group = r["flags"] & GH["REC_IN_GROUP"] != 0
    assert list(in_group) == [g > 0 and op not in (16, 17) for g, op in zip(r["group"], r["op"], strict=True)]
    ends = r[(r["op"] == 16) | (r["op"] == 17)]
    assert list(ends["aux"]) == [0, 2, 2, 1]
    assert list(ends["bytes"]) == [0, 64, 8, 4]
    assert [int(c) for c in ends["comm"]] == [0, int(r["comm"][0]), 0, int(r["comm"][0])]


def test_communicators_made_in_a_group_are_known_after_it(runner: Runner) -> None:
    runner.program("groups")
    world, inside, split = runner.ring().comms
    assert (inside["rank"], inside["size"], inside["state"]) == (1, 4, GH["COMM_LIVE"])
    assert (split["rank"], split["size"], split["state"]) == (0, 2, GH["COMM_LIVE"])
    assert split["parent"] == world["hash"] and world["children"] == 2


def test_the_first_communicator_is_made_in_a_group(runner: Runner) -> None:
    runner.program("first_in_group")
    ring = runner.ring()
    assert ring.ops() == ["comm_init", "comm_init", "group", "all_reduce"] and ring.hook_flags == 0
    assert [(int(c["rank"]), int(c["size"]), int(c["state"])) for c in ring.comms] == [(0, 2, 2), (1, 2, 2)]
    assert ring.records["comm"][3] == ring.comms[1]["hash"]


def test_refused_calls_are_marked_and_not_counted(runner: Runner) -> None:
    assert "result 5" in runner.program("errors", FAKE_FAIL="ncclAllReduce")
    ring = runner.ring()
    assert [int(f) for f in ring.records["flags"]] == [0, GH["REC_ERROR"], 0]
    assert list(ring.counts.values()) == [1]


def test_nonblocking_communicators(runner: Runner) -> None:
    runner.run(runner.built.program, "identities", FAKE_NONBLOCKING="1")
    ring = runner.ring()
    assert ring.records["flags"][0] == GH["REC_NONBLOCKING"] and ring.comms[0]["rank"] == 0


@pytest.mark.parametrize(
    ("scenario", "hanging", "op"),
    [("one_call", "ncclAllReduce", "OP_ALL_REDUCE"), ("call_in_group", "ncclGroupEnd", "OP_GROUP")],
)
def test_a_hung_call_is_visible_while_it_hangs(runner: Runner, scenario: str, hanging: str, op: str) -> None:
    environment = runner.variables(FAKE_HANG=hanging)
    process = subprocess.Popen([runner.built.program, scenario], env=environment, stderr=subprocess.PIPE)
    try:
        slot = wait_for_inflight(runner, GH[op])
        assert (slot["tid"], slot["seq"]) == (process.pid, 0)
        ring = runner.ring()
        assert slot["comm"] == ring.comms[0]["hash"] and 0 < slot["t"] <= time.monotonic_ns()
        assert GH[op] not in ring.records["op"] and list(ring.counts.values()) == [1]
    finally:
        process.kill()
        process.communicate()


def wait_for_inflight(runner: Runner, op: int) -> np.void:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        begun = any(path.stat().st_size == 0 for path in runner.step.iterdir())  # made, and not yet filled
        rings = [] if begun else runner.rings()
        rows = [row for ring in rings if ring.magic == GH["MAGIC"] for row in ring.inflight]
        if rows and rows[0]["t"] and rows[0]["op"] == op:
            return rows[0]
        time.sleep(0.01)
    raise AssertionError("no call in flight within 20 s")


def test_nothing_is_in_flight_afterwards(runner: Runner) -> None:
    runner.program("threads", CALLS="50")
    assert len(runner.ring().inflight) == 0


def test_threads_lose_and_invent_nothing(runner: Runner) -> None:
    calls = 1500
    counted = runner.program("threads", "ncclAllReduce", CALLS=str(calls), GREYHOUND_RING_RECORDS="65536")
    ring = runner.ring()
    records, following, lost = ring.read()
    assert (len(records), following, lost) == (2 + 8 * 4 * calls, ring.head, 0)
    assert counted == f"ncclAllReduce {8 * calls}\n"
    for thread in np.unique(records["thread"][2:]):
        mine = records[records["thread"] == thread]
        sizes = mine["bytes"][mine["op"] == GH["OP_ALL_REDUCE"]]
        assert list(sizes) == [4 * i for i in range(calls)]
    for comm in ring.comms:
        seq = records["seq"][(records["comm"] == comm["hash"]) & (records["op"] < 16)]
        assert sorted(seq) == list(range(4 * 3 * calls))
        counts = {key[1:]: n for key, n in ring.counts.items() if key[0] == comm["hash"]}
        received = {(GH["COUNT_RECV"], peer): 4 * calls // 50 for peer in range(50)}
        assert counts == {(GH["COUNT_COLLECTIVE"], -1): 4 * calls, (GH["COUNT_SEND"], 1): 4 * calls, **received}


def test_first_calls_of_eight_threads_at_once(runner: Runner) -> None:
    for _ in range(10):
        runner.program("race")
    assert all(len(ring.ops()) == 24 and len(ring.comms) <= 8 for ring in runner.rings())


def test_no_page_faults_after_the_warm_up(runner: Runner) -> None:
    """Once round the ring, each page of which would be one; a kernel that moves pages may cause a few."""
    minor, major = map(int, runner.program("faults", CALLS="20000").split())
    ring = runner.ring()
    assert ring.head > ring.capacity and minor < 10 and major == 0


def test_reader_counts_what_was_overrun(runner: Runner) -> None:
    runner.program("threads", CALLS="200", GREYHOUND_RING_RECORDS="1024")
    ring = runner.ring()
    records, following, lost = ring.read()
    assert following == ring.head == 2 + 8 * 4 * 200
    assert len(records) + lost == ring.head and len(records) > 1000
    assert (np.diff(records["commit"].astype(np.int64)) > 0).all()


def test_a_slot_that_another_writer_holds_is_left_alone(runner: Runner) -> None:
    program = Stepwise(runner, GREYHOUND_RING_RECORDS="1024")
    found = []
    # a writer a lap behind that hasn't finished; one a lap ahead; an ordinary older record
    for head, commit in ((5000, 0), (6000, 6000 + 1024 + 1), (7000, 7000 - 1024 + 1)):
        program.ring.set_head(head)
        program.ring.commit(head % 1024, commit)
        program.call()
        found.append(program.ring.commit(head % 1024))
    program.end()
    assert found == [0, 6000 + 1024 + 1, 7000 + 1]


def test_reader_beside_eight_writers_reads_whole_records(runner: Runner) -> None:
    hook, root = runner.built.hook, runner.built.root
    rpath = f"-Wl,-rpath,{hook.parent}:{runner.built.nccl.parent}"
    libraries = ["-Wl,--no-as-needed", hook, runner.built.nccl, hook.with_name("libgreyhound_reader.so")]
    program = compile_c(root / "stress", NATIVE / "stress.c", *libraries, rpath)
    assert runner.clean(program, "40000", LD_PRELOAD=None, GREYHOUND_RING_RECORDS="1024").startswith("read ")


def test_reader_stops_at_a_record_being_written_but_not_for_ever(runner: Runner) -> None:
    runner.program("threads", CALLS="20", GREYHOUND_RING_RECORDS="1024")
    ring = runner.ring()
    hole = 100
    ring.commit(hole, 0)
    _, following, lost = ring.read(ring.head - 300)
    assert (following, lost) == (ring.head, 0)
    records, following, lost = ring.read()  # the hole is 542 behind: given up
    assert (len(records), following, lost) == (ring.head - 1, ring.head, 1)
    ring.set_head(hole + 400)
    records, following, lost = ring.read()  # 400 behind: may still come
    assert (len(records), following, lost) == (hole, hole, 0)


def test_reader_refuses_what_is_no_ring(built: Built, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("foreign") / "ring.1.1"
    path.write_bytes(bytes(1 << 20))
    with pytest.raises(AssertionError, match="not a ring"):
        Ring(path, built.reader).read()
