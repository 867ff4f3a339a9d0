"""Trackers of many ranks with jitter of their own, and the job's episodes made of what they say."""

import numpy as np
import pytest

from greyhound.control.episodes import EpisodeMerger
from greyhound.control.messages import Report
from greyhound.detect.tracker import Closed, Opened, Tracker

RANKS = 16


def as_report(finding, opened, ends_ns):
    closed = isinstance(finding, Closed)
    at = finding.end if closed else finding.reported
    slow_s = finding.slowdown * opened.healthy_s
    return Report(
        key="ring",
        rank=0,
        what="closed" if closed else "opened",
        onset=finding.onset,
        onset_ns=int(ends_ns[finding.onset - 1]),
        at=at,
        at_ns=int(ends_ns[at - 1] if closed else ends_ns[at]),
        healthy_s=opened.healthy_s,
        slow_s=slow_s,
        slowdown=finding.slowdown,
        lost_s=finding.lost_s if closed else 0.0,
    )


def job(level, spread, seed, late=3):
    """Episodes of a job whose ranks see one level, each with its own jitter; reports arrive up to ``late`` late."""
    rng = np.random.default_rng(seed)
    merger, trackers = EpisodeMerger(), [Tracker() for _ in range(RANKS)]
    merger.set_tracked({str(rank) for rank in range(RANKS)})
    series = 0.5 * level * np.exp(rng.normal(0, spread, (RANKS, len(level))))
    series[:, rng.random(len(level)) < 0.01] *= 1.8
    series[0, 100::37] *= 3.0  # one rank alone collects garbage
    ends_ns = (np.cumsum(series.mean(axis=0)) * 1e9).astype(int)
    opened, post = {}, []
    for i in range(len(level)):
        for rank, tracker in enumerate(trackers):
            for finding in tracker.update(i, float(series[rank, i])):
                if isinstance(finding, Opened):
                    opened[rank] = finding
                if isinstance(finding, Opened | Closed):
                    post.append((i + int(rng.integers(0, late + 1)), rank, as_report(finding, opened[rank], ends_ns)))
        for _, rank, report in [row for row in post if row[0] == i]:
            merger.report(str(rank), report)
        merger.step(i, int(ends_ns[i]))
    return merger.episodes


@pytest.mark.parametrize("spread", [0.002, 0.02, 0.04])
@pytest.mark.parametrize("factor", [1.2, 1.5])
def test_all_ranks_make_one_episode(factor, spread):
    level = np.ones(500)
    level[200:300] = factor
    (episode,) = job(level, spread, seed=1)
    assert not episode.open
    assert len(episode.phases) == RANKS
    assert abs(episode.onset - 200) <= 2
    assert abs(episode.end - 300) <= 2
    assert episode.slowdown == pytest.approx(factor, rel=0.05)


def test_two_fail_slows_are_two_episodes_and_a_second_level_is_not():
    level = np.ones(800)
    level[200:260] = 1.3
    level[260:300] = 1.7
    level[500:600] = 1.4
    first, second = job(level, 0.01, seed=2)
    assert abs(first.onset - 200) <= 2
    assert abs(first.end - 300) <= 2
    assert abs(second.onset - 500) <= 2


def test_jitter_of_ranks_makes_none():
    assert job(np.ones(600), 0.03, seed=3) == []
