"""What communicators are for, from membership and traffic alone."""

from dataclasses import replace

import numpy as np
import pytest

from greyhound.localize.groups import equals, groups_of
from greyhound.localize.model import Communicator, RankProfile, TimedCall
from greyhound.localize.table import calls_of
from greyhound.testdata.pipeline import Conditions, Layout, profiles
from greyhound.trace import layout as ring

AR, AG, RS, A2A = ring.GH_OP_ALL_REDUCE, ring.GH_OP_ALL_GATHER, ring.GH_OP_REDUCE_SCATTER, ring.GH_OP_ALL_TO_ALL
SEND, RECV = ring.GH_OP_SEND, ring.GH_OP_RECV
MIB = 1 << 20


def roles(rows):
    return {comm: group.role for comm, group in groups_of(rows, calls_of(rows)).items()}


def job(groups, iterations=2):
    """Ranks from groups: {comm: (members, calls of an iteration by place: [(op, bytes, peer)])}."""
    calls, comms = {}, {}
    for comm, (members, what) in groups.items():
        for place, rank in enumerate(members):
            comms.setdefault(rank, []).append(Communicator(comm, len(members), place))
            rows = what(place) * iterations
            calls.setdefault(rank, []).extend(
                TimedCall(comm, seq, op, size, peer, seq * 1000, seq * 1000, seq * 1000 + 500)
                for seq, (op, size, peer) in enumerate(rows)
            )
    times = (1.0,) * iterations
    return [
        RankProfile(
            0, str(rank), rank, "", "w", True, times, times, times, times, tuple(comms[rank]), tuple(calls[rank])
        )
        for rank in sorted(comms)
    ]


def every(*rows):
    return lambda place: [(op, size, -1) for op, size, count in rows for _ in range(count)]


@pytest.mark.parametrize("layout", [Layout(2, 2, 2), Layout(4, 2, 4, micro_batches=8), Layout(2, 4, 1)])
def test_megatron(layout):
    found = roles(profiles(layout, Conditions(), np.random.default_rng(1), 3))
    expected = {1: "tp", 2: "pp", 3: "dp", 9: "world"}
    assert {comm // 1000: role for comm, role in found.items()} == {
        kind: role for kind, role in expected.items() if kind != 2 or layout.pp > 1
    }
    assert len(set(found.values())) == len({comm // 1000 for comm in found})


def test_fsdp_and_ddp_are_data_parallel():
    rows = profiles(Layout(1, 4, 1, sharded=True), Conditions(), np.random.default_rng(2), 3)
    assert roles(rows) == {3000: "dp", 9000: "world"}
    buckets = every((AR, 25 * MIB, 1), (AR, 26 * MIB, 1), (AR, 20 * MIB, 1), (AR, 7 * MIB, 1))
    assert roles(job({5: (range(4), buckets)})) == {5: "dp"}


def test_sequence_parallel_tensor_groups():
    layers = every((AG, MIB, 24), (RS, MIB, 16))
    gradients = every((RS, 64 * MIB, 2), (AG, 32 * MIB, 2))
    found = roles(job({1: ([0, 1], layers), 2: ([2, 3], layers), 3: ([0, 2], gradients), 4: ([1, 3], gradients)}))
    assert found == {1: "tp", 2: "tp", 3: "dp", 4: "dp"}


def test_experts_by_all_to_all_or_by_sends():
    one = every((A2A, MIB, 8))
    gradients = every((AR, 64 * MIB, 2))
    assert roles(job({1: (range(4), one), 2: (range(4), gradients)})) == {1: "ep", 2: "dp"}

    def exchange(place):
        return [(op, MIB, peer) for peer in range(4) if peer != place for op in (SEND, RECV)]

    assert roles(job({1: (range(4), exchange)})) == {1: "ep"}


def test_context_parallel_rings():
    def ring_step(place):
        return [(SEND, MIB, (place + 1) % 4), (RECV, MIB, (place - 1) % 4)] * 3

    assert roles(job({1: (range(4), ring_step)})) == {1: "cp"}


def test_light_groups_only_agree_on_something():
    rows = job(
        {1: (range(4), every((AR, 64 * MIB, 2))), 2: ([0, 3], every((AR, 4096, 1))), 3: ([1], every((AR, 8, 1)))}
    )
    assert roles(rows) == {1: "dp", 2: "unknown", 3: "unknown"}


def test_stages_with_equal_calls_are_no_equals():
    rows = profiles(Layout(1, 4, 2), Conditions(), np.random.default_rng(3), 3)
    rows = [replace(row, work="the same") for row in rows]
    keys = equals(rows, groups_of(rows, calls_of(rows)))
    assert len(set(keys)) == 2
    assert len(set(keys[:4])) == len(set(keys[4:])) == 1


def test_inner_stages_with_a_communicator_for_each_two_neighbours():
    def to(peer, size=MIB):
        return lambda place: [
            (SEND if place == 0 else RECV, size, 1 - place),
            (RECV if place == 0 else SEND, size, 1 - place),
        ]

    data = every((AR, 64 * MIB, 1))
    groups = {stage: ([2 * stage, 2 * stage + 1], data) for stage in range(4)}
    for stage in range(3):
        for replica in range(2):
            groups[100 + 2 * stage + replica] = ([2 * stage + replica, 2 * stage + 2 + replica], to(1))
    rows = job(groups)
    rows = [
        replace(
            row, calls=tuple(replace(c, start_ns=c.start_ns + i, end_ns=c.end_ns + i) for i, c in enumerate(row.calls))
        )
        for row in rows
    ]
    assert {role for comm, role in roles(rows).items() if comm >= 100} == {"pp"}
    keys = equals(rows, groups_of(rows, calls_of(rows)))
    assert [keys[2 * stage] == keys[2 * stage + 1] for stage in range(4)] == [True] * 4
    assert len(set(keys)) == 4


def test_members_that_are_missing_leave_the_size():
    rows = profiles(Layout(2, 2, 2), Conditions(), np.random.default_rng(4), 3)[1:]
    groups = groups_of(rows, calls_of(rows))
    assert {group.complete for group in groups.values() if group.role == "tp"} == {True, False}
    assert all(group.size == 2 for group in groups.values() if group.role == "tp")
