"""Fail-stops: the rank at the end of the chain of waiting is named, and nobody in a pause of all."""

from collections import Counter
from dataclasses import replace

import pytest

from greyhound.localize.failstop import COLLECTIVE, RECEIVES, SENDS, InFlight, Standing, patience_s, stopped
from greyhound.localize.model import Communicator
from greyhound.testdata.pipeline import Layout, schedule
from greyhound.trace import layout as ring

PATIENCE_S = 60.0


class Job:
    """Ranks that issue their calls in order, each when the one before is complete, like blocking hosts."""

    def __init__(self, layout):
        self.layout = layout
        self.comms = {}
        self.programs = [self._program(rank) for rank in range(layout.ranks)]
        self.counts = [Counter() for _ in range(layout.ranks)]
        self.at = [0] * layout.ranks
        self.last = [None] * layout.ranks
        self.posted = [False] * layout.ranks

    def _program(self, rank):
        la = self.layout
        tp, dp, pp = rank % la.tp, rank // la.tp % la.dp, rank // (la.tp * la.dp)
        tensor, data, stages = 1000 + rank // la.tp, 2000 + pp * 10 + tp, 3000 + dp * 10 + tp
        self._join(tensor, [la.rank(i, dp, pp) for i in range(la.tp)])
        self._join(data, [la.rank(tp, i, pp) for i in range(la.dp)])
        self._join(stages, [la.rank(tp, dp, i) for i in range(la.pp)])
        self._join(4000, list(range(la.ranks)))
        calls = []
        for what, argument in schedule(pp, la.pp, la.micro_batches):
            if what == "x":
                calls.append([(stages, SENDS if way == "send" else RECEIVES, peer) for way, peer in argument])
            elif la.tp > 1:
                calls += [[(tensor, COLLECTIVE, -1)]] * 2
        return calls + [[(data, COLLECTIVE, -1)]] * (la.dp > 1) + [[(4000, COLLECTIVE, -1)]]

    def _join(self, comm, ranks):
        self.comms[comm] = ranks

    def _complete(self, rank, call):
        comm, kind, peer = call
        mine = self.counts[rank][call]
        if kind == COLLECTIVE:
            return all(self.counts[other][call] >= mine for other in self.comms[comm])
        other, place = self.comms[comm][peer], self.comms[comm].index(rank)
        return self.counts[other][comm, SENDS if kind == RECEIVES else RECEIVES, place] >= mine

    def _step(self, rank, stops):
        program = self.programs[rank]
        if stops.get(rank) == self.at[rank]:
            return False
        calls = program[self.at[rank] % len(program)]
        if not self.posted[rank]:
            self.counts[rank].update(calls)
            self.posted[rank] = True
            self.last[rank] = calls[-1][0]
        elif all(self._complete(rank, call) for call in calls):
            self.at[rank] += 1
            self.posted[rank] = False
        else:
            return False
        return True

    def run(self, stops):
        """Until nobody can go on: `stops` says before which call a rank stops for good."""
        while sum(self._step(rank, stops) for rank in range(self.layout.ranks)):
            pass

    def standing(self, still_s=600.0):
        return [
            Standing(
                rank // self.layout.per_node,
                f"ring.{rank}",
                rank,
                still_s,
                dict(self.counts[rank]),
                tuple(
                    Communicator(comm, len(ranks), ranks.index(rank))
                    for comm, ranks in self.comms.items()
                    if rank in ranks
                ),
                last_comm=self.last[rank],
            )
            for rank in range(self.layout.ranks)
        ]


def hung(layout, rank, at):
    job = Job(layout)
    job.run({rank: at} | {other: at + 10_000 for other in range(layout.ranks) if other != rank})
    return job


LAYOUTS = [
    Layout(2, 2, 2, micro_batches=3),
    Layout(1, 4, 2),
    Layout(1, 4, 1),
    Layout(1, 1, 4),
    Layout(2, 2, 4, micro_batches=1),
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda la: f"TP{la.tp} DP{la.dp} PP{la.pp}")
def test_the_rank_that_stopped_is_named_wherever_it_stops(layout):
    for rank in range(layout.ranks):
        steps = len(Job(layout).programs[rank])
        for at in range(steps // 2, steps * 3 // 2):
            job = hung(layout, rank, at)
            (found,) = stopped(job.standing(), PATIENCE_S)
            assert (found.rank, found.since_s) == (rank, 600.0), (rank, at)
            assert found.waiting and rank not in found.waiting
            assert found.seq in {count for (comm, *_), count in job.counts[rank].items() if comm == found.comm} | {0}


def test_nobody_is_named_for_a_collective_that_all_its_members_have_issued():
    """A stopped process whose last call is out: its peer in it stands just like it, and others wait for both."""
    layout, tried = Layout(2, 2, 2, micro_batches=3), 0
    for rank in range(layout.ranks):
        program = Job(layout).programs[rank]
        for at in range(len(program) // 2, len(program) * 3 // 2):
            job = hung(layout, rank, at)
            calls = program[at % len(program)]
            if calls[0][1] == COLLECTIVE:
                job.counts[rank].update(calls)
                job.last[rank] = calls[-1][0]
                assert {row.rank for row in stopped(job.standing(), PATIENCE_S)} <= {rank}, (rank, at)
                tried += 1
    assert tried > 50


def test_two_that_stopped_are_both_named():
    job = Job(Layout(2, 2, 2))
    job.run({0: 5, 7: 9} | dict.fromkeys(range(1, 7), 10_000))
    assert {0} <= {row.rank for row in stopped(job.standing(), PATIENCE_S)} <= {0, 7}


@pytest.mark.parametrize("calls", [0, 30])
def test_a_pause_of_all_is_none(calls):
    """Between iterations all have issued the same calls: an evaluation without us, a checkpoint."""
    job = Job(Layout(2, 2, 2))
    job.run({rank: len(job.programs[rank]) * calls for rank in range(8)})
    assert stopped(job.standing(3600.0), PATIENCE_S) == []


def test_a_job_that_moves_has_none():
    job = hung(Layout(2, 2, 2), 3, 17)
    assert stopped(job.standing(PATIENCE_S - 1), PATIENCE_S) == []
    slow = [replace(row, still_s=1.0) if row.rank == 3 else row for row in job.standing()]
    assert stopped(slow, PATIENCE_S) == []


def test_a_host_that_does_not_return_is_named():
    rows = Job(Layout(1, 4, 1)).standing()
    call = InFlight(4000, 7, ring.GH_OP_ALL_REDUCE, 600.0)
    rows[2] = replace(rows[2], in_flight=(call,), last="all_reduce")
    (found,) = stopped(rows, PATIENCE_S)
    assert (found.rank, found.inside, found.seq) == (2, True, 7)
    assert "rank 2 does not return from all_reduce 7" in found.text


def test_nobody_is_blamed_for_a_collective_that_holds_all():
    call = InFlight(4000, 7, ring.GH_OP_ALL_REDUCE, 600.0)
    rows = [replace(row, in_flight=(call,)) for row in Job(Layout(1, 4, 1)).standing()]
    assert stopped(rows, PATIENCE_S) == []


def test_nobody_is_blamed_for_a_deadlock():
    rows = Job(Layout(1, 2, 1)).standing()
    one = {(4000, COLLECTIVE, -1): 3, (2000, COLLECTIVE, -1): 2}
    other = {(4000, COLLECTIVE, -1): 2, (2000, COLLECTIVE, -1): 3}
    rows = [replace(row, counts=counts) for row, counts in zip(rows, (one, other), strict=True)]
    assert stopped(rows, PATIENCE_S) == []


def test_ranks_that_are_missing_and_groups_of_one_do_no_harm():
    job = hung(Layout(2, 2, 2), 3, 17)
    for missing in range(8):
        rows = [row for row in job.standing() if row.rank != missing]
        assert {row.rank for row in stopped(rows, PATIENCE_S)} <= ({3} if missing != 3 else set(range(8)))
    alone = Standing(0, "ring.1", 0, 1e9, {(1, COLLECTIVE, -1): 5}, (Communicator(1, 1, 0),))
    assert stopped([alone], PATIENCE_S) == stopped([], PATIENCE_S) == []


def test_patience_grows_with_what_the_job_does():
    assert patience_s(0.5) == 60.0
    assert patience_s(20.0) == 200.0
    assert patience_s(0.5, longest_pause_s=120.0) == 360.0


def test_a_large_job_is_judged_at_once_and_its_candidates_are_few():
    """One half waits for the other: a million waits, and half of all ranks candidates."""
    world = [Communicator(7, 2048, rank) for rank in range(2048)]
    calls = [50 + rank % 2 for rank in range(2048)]
    ranks = [
        Standing(rank // 8, f"k{rank}", rank, 100.0, {(7, COLLECTIVE, -1): calls[rank]}, (world[rank],))
        for rank in range(2048)
    ]
    ranks[1000] = replace(ranks[1000], still_s=200.0)
    found = stopped(ranks, PATIENCE_S)
    assert len(found) == 64 and 1000 in {row.rank for row in found}
    assert all(len(row.waiting) == 1024 for row in found)
    ranks = [replace(standing, counts={(7, COLLECTIVE, -1): 50 + (standing.rank != 77)}) for standing in ranks]
    assert [row.rank for row in stopped(ranks, PATIENCE_S)] == [77]
