"""Episodes of the job out of the ranks' reports."""

from hypothesis import given
from hypothesis import strategies as st

from greyhound.control.episodes import KEPT, EpisodeMerger
from greyhound.control.messages import Report

S = 1_000_000_000


def report(what, onset, at, slowdown=1.5, lost_s=0.0):
    return Report("ring", 0, what, onset, onset * S, at, at * S, 1.0, slowdown, slowdown, lost_s)


def merger(count):
    made = EpisodeMerger()
    made.set_tracked({str(rank) for rank in range(count)})
    return made


def test_opens_at_half_of_the_ranks_and_closes_when_half_recovered():
    jobs = merger(4)
    jobs.report("0", report("opened", 100, 104, 1.4))
    assert jobs.step(104, 104 * S) == []
    jobs.report("1", report("opened", 101, 105, 1.6))
    (episode,) = jobs.step(105, 105 * S)
    assert (episode.id, episode.open, episode.slowdown, episode.healthy_s) == ("e1", True, 1.5, 1.0)
    jobs.report("2", report("opened", 102, 106, 1.6))
    assert jobs.step(106, 106 * S) == []
    assert episode.slowdown == 1.6
    jobs.report("0", report("closed", 100, 150, 1.5, 20.0))
    assert jobs.step(150, 150 * S) == []
    jobs.report("1", report("closed", 101, 152, 1.5, 30.0))
    (closed,) = jobs.step(152, 152 * S)
    assert closed is episode
    assert (closed.open, closed.end, closed.cause, closed.lost_s(999)) == (False, 151, "recovered", 25.0)


def test_one_rank_alone_is_no_episode_of_eight():
    jobs = merger(8)
    for rank in "012":
        jobs.report(rank, report("opened", 10, 14))
    assert jobs.step(20, 20 * S) == []


def test_phases_that_do_not_overlap_are_not_one_episode():
    jobs = merger(4)
    jobs.report("0", report("opened", 10, 14))
    jobs.report("0", report("closed", 10, 20))
    jobs.report("1", report("opened", 30, 34))
    assert jobs.step(34, 34 * S) == []


def test_a_short_episode_reported_late_opens_and_closes():
    jobs = merger(2)
    jobs.report("0", report("opened", 10, 14))
    jobs.report("0", report("closed", 10, 20))
    changed = jobs.step(21, 21 * S)
    assert [(episode.id, episode.open) for episode in changed] == [("e1", False)]


def test_second_episode_has_its_own_id_and_a_straggler_does_not_open_it():
    jobs = merger(2)
    for rank in "01":
        jobs.report(rank, report("opened", 10, 14))
    jobs.step(14, 14 * S)
    jobs.report("0", report("closed", 10, 20))
    jobs.step(20, 20 * S)
    assert jobs.current is None
    assert jobs.step(21, 21 * S) == []
    jobs.report("0", report("opened", 30, 34))
    (second,) = jobs.step(34, 34 * S)
    assert second.id == "e2"


def test_reports_that_come_before_their_ranks_are_known_count():
    jobs = EpisodeMerger()
    for rank in "01":
        jobs.report(rank, report("opened", 10, 14))
    assert jobs.step(14, 14 * S) == []
    jobs.set_tracked(set())
    assert jobs.step(15, 15 * S) == []
    jobs.set_tracked({"0", "1"})
    (episode,) = jobs.step(16, 16 * S)
    assert (episode.id, episode.onset) == ("e1", 10)


def test_ranks_that_end_take_their_episode_with_them():
    jobs = merger(1)
    jobs.report("0", report("opened", 10, 14, 2.0))
    jobs.step(14, 14 * S)
    jobs.set_tracked(set())
    (closed,) = jobs.step(30, 30 * S)
    assert (closed.open, closed.cause, closed.lost_s(30)) == (False, "its ranks ended", 20.0)


def test_ranks_with_somewhat_different_onsets_are_one_episode():
    jobs = merger(2)
    jobs.report("0", report("opened", 10, 14))
    jobs.report("1", report("opened", 11, 15))
    (episode,) = jobs.step(15, 15 * S)
    assert len(episode.phases) == 2
    for rank in "01":
        jobs.report(rank, report("closed", 10, 20))
    assert jobs.step(20, 20 * S) == [episode]
    assert jobs.step(21, 21 * S) == []
    assert len(jobs.episodes) == 1


steps = st.lists(
    st.tuples(st.sampled_from("abcd"), st.booleans(), st.integers(0, 50), st.integers(1, 20), st.booleans()),
    max_size=40,
)


@given(steps)
def test_whatever_is_reported_each_episode_opens_and_closes_once(moves):
    jobs = EpisodeMerger()
    jobs.set_tracked(set("abcd"))
    opened, closed, now = [], [], 0
    for key, opening, onset, length, tick in moves:
        now = max(now, onset + length)
        jobs.report(key, report("opened" if opening else "closed", onset, onset + length))
        for episode in jobs.step(now, now * S) if tick else []:
            assert len(episode.phases) >= 2 or not episode.open
            if episode.id not in opened:
                opened.append(episode.id)
            if not episode.open:
                closed.append(episode.id)
    assert opened == [f"e{number + 1}" for number in range(len(opened))]
    assert len(set(closed)) == len(closed)
    assert all(episode.lost_s(now) >= 0 for episode in jobs.episodes)
    assert sum(episode.open for episode in jobs.episodes) <= 1
    for key in "abcd":
        jobs.report(key, report("closed", 0, now + 1))
    jobs.step(now + 1, (now + 1) * S)
    assert jobs.current is None
    assert jobs.step(now + 2, (now + 2) * S) == []


def test_job_of_weeks_keeps_a_bounded_number_of_episodes_and_the_whole_loss():
    jobs = merger(2)
    for number in range(1, 501):
        at = 100 * number
        for rank in "01":
            jobs.report(rank, report("opened", at, at + 4))
        jobs.step(at + 4, (at + 4) * S)
        for rank in "01":
            jobs.report(rank, report("closed", at, at + 50, 1.5, 2.0))
        (closed,) = jobs.step(at + 50, (at + 50) * S)
        assert closed.id == f"e{number}"
    assert len(jobs.episodes) == KEPT
    assert jobs.forgotten == 500 - KEPT
    assert jobs.lost_s(60_000) == 1000.0
