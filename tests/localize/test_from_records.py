"""A rank's own time from records and GPU timings: gaps, samples, groups of streams, what can't be told."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from greyhound.localize.from_records import NoProfile, RankFacts, Window, build, mix
from greyhound.trace import layout
from greyhound.trace.records import COMM_DTYPE, RECORD_DTYPE, TIMING_DTYPE

MS = 1_000_000
BEGIN_NS = 5_000_000 * MS
OFFSET_NS = 1_700_000_000 * 1_000_000_000
FACTS = RankFacts(2, "ring.1.2", 5, "0000:0b:00.0", "work")
TP, DP = 0xFFFF_0000_0000_0001, 0x22


class Rank:
    """A rank as its hook sees it: `own_ms` of work, then a call of `call_ms`; the host runs `ahead_ms` ahead."""

    def __init__(self):
        self.now_ns = BEGIN_NS
        self.seq = {}
        self.records, self.timings, self.ends_ns = [], [], []

    def call(self, own_ms, call_ms, comm=TP, timed=True, ahead_ms=0.5, stream=1):
        start_ns = self.now_ns + round(own_ms * MS)
        self.now_ns = start_ns + round(call_ms * MS)
        self.place(start_ns, self.now_ns, comm, timed, ahead_ms, stream)

    def place(self, start_ns, end_ns, comm=TP, timed=True, ahead_ms=0.5, stream=1):
        seq = self.seq[comm] = self.seq.get(comm, -1) + 1
        entry_ns = start_ns - round(ahead_ms * MS)
        record = np.zeros(1, RECORD_DTYPE)
        record["t_ns"], record["comm"], record["seq"], record["bytes"] = entry_ns, comm, seq, 1024
        record["op"], record["peer"], record["host_ns"], record["stream"] = layout.GH_OP_ALL_REDUCE, -1, 2000, stream
        self.records.append(record)
        if timed:
            timing = np.zeros(1, TIMING_DTYPE)
            timing["comm"], timing["seq"], timing["entry_ns"] = comm, seq, entry_ns
            timing["start_ns"], timing["duration_ns"] = start_ns, end_ns - start_ns
            self.timings.append(timing)
        self.last_ns = entry_ns

    def end(self):
        self.ends_ns.append(self.last_ns)

    def window(self, sizes=((TP, 4, 1), (DP, 2, 0)), state=layout.GH_COMM_LIVE):
        comms = np.zeros(len(sizes), COMM_DTYPE)
        for row, (number, size, rank) in zip(comms, sizes, strict=True):
            row["hash"], row["size"], row["rank"], row["state"] = number, size, rank, state
        records = np.concatenate(self.records) if self.records else np.empty(0, RECORD_DTYPE)
        timings = np.concatenate(self.timings) if self.timings else np.empty(0, TIMING_DTYPE)
        return Window(records, timings, comms, np.array(self.ends_ns, dtype=np.int64), OFFSET_NS)

    def profile(self, most_calls=256, **given):
        return build(FACTS, self.window(**given), most_calls)


def train(iterations=6, own_ms=3.0, calls=10, boundary_ms=7.0, timed=lambda i, k: True, **given):
    rank = Rank()
    for iteration in range(iterations):
        for k in range(calls):
            comm = DP if k == calls - 1 else TP
            rank.call(boundary_ms if k == 0 else own_ms, 1.0, comm, timed(iteration, k), **given)
        rank.end()
    return rank


def test_own_time_is_what_lies_between_the_calls():
    profile = train().profile()
    assert profile.timed and len(profile.iteration_s) == 5
    assert (profile.node, profile.rank, profile.bus, profile.work) == (2, 5, "0000:0b:00.0", "work")
    assert profile.iteration_s == pytest.approx([0.044] * 5)
    assert profile.own_s == pytest.approx([0.034] * 5)
    assert profile.boundary_s == pytest.approx([0.007] * 5)
    assert profile.host_s == pytest.approx([0.034 - 10 * 0.0005] * 5)
    assert [(comm.hash, comm.size, comm.rank) for comm in profile.comms] == [(DP, 2, 0), (TP, 4, 1)]
    call = profile.calls[0]
    assert (call.comm, call.seq, call.bytes, call.peer) == (TP, 0, 1024, -1)
    assert call.start_ns == BEGIN_NS + OFFSET_NS + 7 * MS and call.end_ns - call.start_ns == MS
    assert call.start_ns - call.entry_ns == MS // 2


def test_a_host_far_ahead_has_no_part_in_the_own_time():
    assert train(ahead_ms=30.0).profile().host_s == pytest.approx([0.0] * 5)


def test_calls_that_overlap_on_two_streams_count_once():
    rank = Rank()
    for _ in range(4):
        begin_ns = rank.now_ns
        rank.place(begin_ns + 4 * MS, begin_ns + 10 * MS, TP, stream=1)
        rank.place(begin_ns + 5 * MS, begin_ns + 12 * MS, DP, stream=2)
        rank.place(begin_ns + 6 * MS, begin_ns + 8 * MS, TP, stream=1)
        rank.now_ns = begin_ns + 20 * MS
        rank.place(begin_ns + 19 * MS, rank.now_ns, TP)
        rank.end()
    profile = rank.profile()
    assert profile.own_s == pytest.approx([0.011] * 3)
    assert profile.boundary_s == pytest.approx([0.004] * 3)


def test_of_sampled_calls_the_known_gaps_stand_for_the_others():
    sampled = train(iterations=12, timed=lambda i, k: (10 * i + k) // 4 % 3 == 0).profile()
    assert sampled.timed
    assert sampled.own_s == pytest.approx([0.034] * 11)
    assert sampled.boundary_s == pytest.approx([0.007] * 11)
    assert len(sampled.calls) == 40


def test_without_gpu_times_the_hosts_are_used_and_it_is_said():
    profile = train(timed=lambda i, k: False).profile()
    assert not profile.timed
    assert profile.own_s == pytest.approx([0.044 - 10 * 2e-6] * 5)
    assert profile.host_s == profile.own_s
    assert all(call.start_ns == call.entry_ns and call.end_ns == call.entry_ns + 2000 for call in profile.calls)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda rank: rank.ends_ns.clear(), "no whole iteration"),
        (lambda rank: rank.ends_ns.__delitem__(slice(1, None)), "no whole iteration"),
        (lambda rank: rank.records.clear(), "no call"),
    ],
)
def test_what_cannot_be_told_is_said(spoil, said):
    rank = train()
    spoil(rank)
    with pytest.raises(NoProfile, match=said):
        rank.profile()


def test_absurd_timings_count_as_unknown():
    rank = train()
    for timing in rank.timings[::2]:
        timing["duration_ns"] = (1 << 40) - 1
    rank.timings[1]["start_ns"] = 0
    profile = rank.profile()
    assert all(call.end_ns - call.start_ns <= 3600 * 1000 * MS for call in profile.calls)
    assert all(np.isfinite(values).all() for values in (profile.own_s, profile.host_s, profile.boundary_s))


def test_destroyed_communicators_count_and_pending_ones_do_not():
    assert len(train().profile(state=layout.GH_COMM_GONE).comms) == 2
    pending = train().profile(state=layout.GH_COMM_PENDING)
    assert pending.comms == () and pending.calls == ()
    assert pending.own_s == pytest.approx([0.034] * 5)


def test_members_choose_the_same_calls_of_their_communicator():
    few, many = train(iterations=40).profile(most_calls=20), train(iterations=40).profile(most_calls=60)
    assert len(few.calls) == 20 and len(many.calls) == 60
    for comm in (TP, DP):
        of_few, of_many = ({call.seq for call in p.calls if call.comm == comm} for p in (few, many))
        assert of_few <= of_many and len(of_few) == 10
    rank = Rank()  # a member that does other work besides, on a third communicator
    for _ in range(40):
        for k in range(10):
            rank.call(3.0, 1.0, DP if k == 9 else TP)
            rank.call(1.0, 0.5, 0x33)
        rank.end()
    third = build(FACTS, rank.window(((TP, 4, 2), (DP, 2, 1), (0x33, 2, 0))), 60)
    for comm in (TP, DP):
        of_third, of_many = ({call.seq for call in p.calls if call.comm == comm} for p in (third, many))
        assert len(of_third) == 20 and of_third <= of_many


def test_few_iterations_of_a_long_window_are_kept():
    profile = train(iterations=400, calls=3).profile()
    assert len(profile.iteration_s) == 256


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 20), st.floats(0, 9), st.booleans(), st.booleans()), min_size=1, max_size=60),
    st.integers(0, 40),
)
def test_own_and_call_time_never_exceed_the_iteration(calls, most_calls):
    rank = Rank()
    for own_ms, call_ms, timed, ends in calls:
        rank.call(own_ms, call_ms, timed=timed, ahead_ms=0.0)
        if ends and (not rank.ends_ns or rank.last_ns > rank.ends_ns[-1]):
            rank.end()
    try:
        profile = rank.profile(most_calls)
    except NoProfile:
        return
    assert len(profile.calls) <= most_calls
    for own_s, host_s, boundary_s in zip(profile.own_s, profile.host_s, profile.boundary_s, strict=True):
        assert 0 <= host_s <= own_s + 1e-9 and 0 <= boundary_s <= own_s + 1e-9
    if all(timed for _, _, timed, _ in calls):
        assert sum(profile.own_s) <= sum(profile.iteration_s) + 20e-3 + 1e-9


def test_the_hash_spreads():
    hashes = mix(np.full(1000, TP, np.uint64), np.arange(1000, dtype=np.uint32))
    assert len(np.unique(hashes)) == 1000
    assert 350 < (hashes < np.uint64(1 << 63)).sum() < 650
