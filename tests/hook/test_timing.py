"""GPU timings: what the hook's events say, over the stand-in, whose streams, links and kernels have modelled times."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from greyhound.trace import layout
from greyhound.trace.records import timings, top_level
from greyhound.trace.ring import ProfileCounts, Ring
from tests.hook.conftest import NATIVE, Runner, Stepwise, compile_c
from tests.hook.ring_view import GH, ROOT
from tests.standin.build import build_standin
from tests.standin.page import Page

MS, MIB = 1_000_000, 1 << 20
DATA_OPS = layout.GH_OP_WAIT_SIGNAL


def word(budget_per_s: int = 4096, one_in: int = 1, epoch: int = 1) -> str:
    return f"p{epoch << 48 | one_in << 32 | budget_per_s:x}"


ALL = word()
TOLD = "u"


@dataclass
class Seen:
    """What one rank's ring holds."""

    records: np.ndarray
    timings: np.ndarray
    counts: ProfileCounts

    def of(self, op: int, size: int) -> np.ndarray:
        found: np.ndarray = self.timings[(self.timings["op"] == op) & (self.timings["bytes"] == size)]
        return found


def build(root: Path, *ahead: object) -> Path:
    """With libraries that go ahead of NCCL; once a session."""
    if (root / "timed").exists():
        return root / "timed"
    libraries = build_standin()
    links = [f"-L{libraries}", f"-Wl,-rpath,{libraries}", "-lnccl", "-lcudart"]
    include = f"-I{ROOT / 'hook' / 'standin' / 'include'}"
    return compile_c(root / "timed", include, *ahead, NATIVE / "timed.c", *links, f"-Wl,-rpath,{root}")


class Ranks:
    """Runs timed.c and gathers what its ranks recorded."""

    def __init__(self, runner: Runner, program: Path) -> None:
        self.runner, self.program, self.output = runner, program, ""

    def __call__(self, ranks: int, *words: str, **variables: str | None) -> list[Seen]:
        self.output = self.runner.clean(self.program, ranks, *words, **variables)
        return self.gather()

    def gather(self) -> list[Seen]:
        rings = sorted((Ring.open(path) for path in self.runner.step.iterdir()), key=lambda r: r.header.world_rank)
        found = []
        for ring in rings:
            records, lost = ring.read()
            assert not lost
            found.append(Seen(records, timings(records), ring.profile_counts))
            ring.close()
        return found


@pytest.fixture
def ranks(runner: Runner) -> Iterator[Ranks]:
    yield Ranks(runner, build(runner.built.root))


def check_joined(seen: Seen) -> None:
    """Each timing names a record, once, and agrees with it."""
    calls = {(int(r["comm"]), int(r["seq"])): r for r in seen.records[seen.records["op"] <= DATA_OPS]}
    keys = [(int(t["comm"]), int(t["seq"])) for t in seen.timings]
    assert len(set(keys)) == len(keys)
    for timing, key in zip(seen.timings, keys, strict=True):
        for name in ("op", "bytes", "peer", "group", "stream"):
            assert timing[name] == calls[key][name], name
        assert timing["entry_ns"] == calls[key]["t_ns"]


def test_durations_are_those_of_events_around_the_call(ranks: Ranks) -> None:
    """Behind a kernel, so that the host's own delays don't count; the best of several, should it stall all the same."""
    found = ranks(2, ALL, *["k100", f"o{MIB}"] * 5, TOLD)
    for rank, seen in enumerate(found):
        own = [int(line.split()[1]) for line in ranks.output.splitlines() if line.startswith(f"{rank} ")]
        timed = seen.of(layout.GH_OP_ALL_REDUCE, MIB)
        differences = np.array(own) - timed["duration_ns"].astype(np.int64)
        assert len(own) == len(timed) == 5
        assert np.abs(differences).min() < 1000 and (differences > -1000).all(), differences
        assert (timed["start_ns"] >= timed["entry_ns"] + 50 * MS).sum() >= 1
        check_joined(seen)


def test_a_slow_link_shows_in_the_duration(ranks: Ranks, tmp_path: Path) -> None:
    page = Page(tmp_path / "page", ["n0:0", "n0:1"])
    page.link(0, 1, bytes_per_s=50e6)
    ranks.runner.environment |= {"GREYHOUND_STANDIN_PAGE": str(page.path), "GREYHOUND_STANDIN_NODE": "n0"}
    found = ranks(2, ALL, f"r{4 * MIB}", f"s{4 * MIB}", TOLD)
    expected_ns = 4 * MIB / 50e6 * 1e9
    reduces = [seen.of(layout.GH_OP_ALL_REDUCE, 4 * MIB)["duration_ns"] for seen in found]
    assert [len(each) for each in reduces] == [1, 1]
    assert max(int(each[0]) for each in reduces) > 0.95 * expected_ns
    (sent,) = found[0].of(layout.GH_OP_SEND, 4 * MIB)
    (received,) = found[1].of(layout.GH_OP_RECV, 4 * MIB)
    assert sent["duration_ns"] > 0.95 * expected_ns
    assert (sent["peer"], received["peer"]) == (1, 0)


def test_who_is_late_starts_late_and_waits_least(ranks: Ranks) -> None:
    found = ranks(3, ALL, "r64", "w", "k300@1", "r4096", TOLD)
    timed = [seen.of(layout.GH_OP_ALL_REDUCE, 4096)[0] for seen in found]
    late = timed[1]
    assert late["start_ns"] - late["entry_ns"] > 100 * MS
    for other in (timed[0], timed[2]):
        assert late["start_ns"] > other["start_ns"] + 100 * MS
        assert other["duration_ns"] > late["duration_ns"] + 100 * MS


def test_all_ranks_time_the_same_calls(ranks: Ranks) -> None:
    found = ranks(2, word(1 << 20, one_in=4), "320*r128", TOLD)
    expected = [seq for seq in range(320) if seq // 16 % 4 == 0]
    for seen in found:
        assert sorted(seen.of(layout.GH_OP_ALL_REDUCE, 128)["seq"]) == expected
        check_joined(seen)


def test_the_budget_is_kept(ranks: Ranks) -> None:
    for seen in ranks(2, word(64), "3000*r64", TOLD):
        data = seen.records[seen.records["op"] <= DATA_OPS]
        spent_s = (int(data["t_ns"][-1]) - int(data["t_ns"][0])) / 1e9
        assert 0 < seen.counts.made <= 16 + 64 * spent_s + 1
        assert seen.counts.made + seen.counts.over_budget == 3000


def test_a_group_has_one_time_for_all_its_calls(ranks: Ranks) -> None:
    for seen in ranks(2, ALL, "g4096", "x1000", TOLD):
        check_joined(seen)
        grouped = seen.timings[seen.timings["group"] > 0]
        assert [layout.OPS[op] for op in grouped["op"]] == ["all_reduce", "all_reduce", "send", "recv"]
        for group in (1, 2):
            times = grouped[grouped["group"] == group]
            assert len(set(times["start_ns"])) == len(set(times["duration_ns"])) == 1
            assert times["entry_ns"][0] < times["entry_ns"][1]
        assert seen.counts.written == seen.counts.made + 2


def test_a_group_over_several_streams_is_left_out(ranks: Ranks) -> None:
    for seen in ranks(2, ALL, "y4096", TOLD):
        assert len(seen.of(layout.GH_OP_ALL_REDUCE, 4096)) == 0 and seen.counts.unsuited == 1
        check_joined(seen)


def test_a_group_is_timed_if_one_of_its_calls_is_chosen(ranks: Ranks) -> None:
    """Calls 15 and 16 share a group; only the first is in a run that is chosen."""
    for seen in ranks(2, word(one_in=2), "15*r64", "g128", "15*r64", "2*r64", TOLD):
        assert sorted(seen.of(layout.GH_OP_ALL_REDUCE, 128)["seq"]) == [15, 16]


def test_nothing_happens_under_capture(ranks: Ranks) -> None:
    """The stand-in spoils the capture if an event is asked in it, as CUDA does."""
    for seen in ranks(2, ALL, "3*r64", "c512", "w", TOLD):
        captured = seen.records["flags"] & layout.GH_REC_CAPTURED != 0
        assert captured.sum() == 1 and len(seen.of(layout.GH_OP_ALL_REDUCE, 512)) == 0
        assert seen.counts.unsuited == 2  # the one beside it, too


def test_the_programs_own_errors_stay(ranks: Ranks) -> None:
    found = ranks(2, ALL, "k100", "r64", "r64", "l", "e", "r128", "l", TOLD, "l")
    assert sorted(ranks.output.split()) == ["0"] * 4 + ["101"] * 2
    for seen in found:
        assert len(seen.of(layout.GH_OP_ALL_REDUCE, 128)) == 0 and seen.counts.unsuited == 1


def test_no_word_and_no_bracket(ranks: Ranks) -> None:
    for seen in ranks(2, "5*r64", TOLD):
        assert seen.counts == ProfileCounts(0, 0, 0, 0, 0, 0, 0, 0) and len(seen.timings) == 0


def test_muted_and_no_bracket(ranks: Ranks) -> None:
    for seen in ranks(2, ALL, "m0", "5*r64", "g64", "w", "r64"):
        assert seen.counts == ProfileCounts(0, 0, 0, 0, 0, 0, 0, 0)


def test_what_is_under_way_is_told_after_the_end(ranks: Ranks) -> None:
    for seen in ranks(2, ALL, "k100", "5*r64", "p0", "r128", TOLD):
        assert len(seen.timings) == 5 == seen.counts.made
        assert len(seen.of(layout.GH_OP_ALL_REDUCE, 128)) == 0


def test_after_a_pause_the_clocks_are_related_anew(ranks: Ranks) -> None:
    """Two seconds are too long for what was known before: the GPU's clock drifts."""
    words = [ALL, "r64", "w", "p0", "2*r64", "w", "z2200", "r64", ALL, "k400", "r128", TOLD]
    for seen in ranks(2, *words):
        (timed,) = seen.of(layout.GH_OP_ALL_REDUCE, 128)
        assert timed["start_ns"] - timed["entry_ns"] > 100 * MS
        check_joined(seen)


def test_another_epoch_forgets_what_is_under_way(ranks: Ranks) -> None:
    for seen in ranks(2, ALL, "k300", "5*r64", word(epoch=2), "r128", TOLD):
        assert list(seen.timings["bytes"]) == [128]


def test_more_brackets_than_there_is_room_for(ranks: Ranks) -> None:
    for seen in ranks(2, word(1 << 20), "k300", "300*r64", TOLD):
        assert seen.counts.no_room == 300 - 256 and seen.counts.made == 256
        check_joined(seen)


def test_communicators_destroyed_meanwhile(ranks: Ranks) -> None:
    for seen in ranks(2, ALL, *["r64", "d"] * 5, TOLD):
        check_joined(seen)
        assert len(set(seen.timings["comm"])) == 5


def test_another_device_is_left_out(ranks: Ranks) -> None:
    for seen in ranks(2, ALL, "r64", "w", "v1", "r128", "w", "v0", "r256", TOLD):
        assert len(seen.of(layout.GH_OP_ALL_REDUCE, 128)) == 0 and seen.counts.unsuited == 1
        assert len(seen.of(layout.GH_OP_ALL_REDUCE, 256)) == 1


def test_two_threads(ranks: Ranks) -> None:
    for seen in ranks(2, word(1 << 20), "t2000", TOLD):
        check_joined(seen)
        c = seen.counts
        assert c.made + c.contended + c.no_room + c.over_budget >= 4000 and c.failed == c.unsuited == 0
        tracked = top_level(seen.records)
        assert c.written and (tracked["bytes"] == 64).sum() == 4000 and tracked["op"].max() <= DATA_OPS


def test_a_child_of_fork_times_nothing(ranks: Ranks) -> None:
    for seen in ranks(2, ALL, "k100", "3*r64", "f", TOLD):
        assert len(seen.of(layout.GH_OP_ALL_REDUCE, 64)) == 3 == seen.counts.made
        check_joined(seen)


def test_a_process_without_a_runtime_is_left_alone(runner: Runner) -> None:
    """fake_nccl.c has none, and nothing is loaded for it."""
    calls = Stepwise(runner)
    (path,) = runner.step.iterdir()
    ring = Ring.open(path)
    ring.set_profile(1000)
    for _ in range(3):
        calls.call()
    calls.end()
    assert ring.profile_counts == ProfileCounts(0, 0, 0, 0, 0, 3, 0, 0)
    assert (ring.read()[0]["op"] < GH["OP_TIMING"]).all()


def test_a_word_that_a_killed_analyzer_left_is_ignored(runner: Runner) -> None:
    calls = Stepwise(runner)
    (path,) = runner.step.iterdir()
    ring = Ring.open(path)
    ring.set_profile(1000)
    for age_s in (0, 20, 60, 3600):
        ring.set_master_heartbeat(time.monotonic_ns() - age_s * 1_000_000_000)
        calls.call()
    assert ring.profile_counts.unsuited == 2
    ring.set_master_heartbeat(time.monotonic_ns())
    calls.call()
    calls.end()
    assert ring.profile_counts == ProfileCounts(0, 0, 0, 0, 0, 3, 0, 0)


def sanitized(runner: Runner, name: str) -> Path:
    """timed.c, linked to the hook ahead of NCCL."""
    from tests.hook.test_sanitizers import ASAN, TSAN, sanitized

    flags = {"asan": ASAN, "tsan": TSAN}[name]
    root = sanitized(runner, name, flags)
    return build(root, *flags, "-Wl,--no-as-needed", root / "libgreyhound_hook.so")


@pytest.mark.sanitizer
@pytest.mark.parametrize("name", ["asan", "tsan"])
def test_timings_under_sanitizers(runner: Runner, name: str) -> None:
    ranks = Ranks(runner, sanitized(runner, name))
    # In the ranks, children of fork, TSAN takes a lock of libc's own fork for one that is still held.
    tsan = "halt_on_error=1 die_after_fork=0 detect_deadlocks=0"
    options = {"ASAN_OPTIONS": "detect_leaks=0", "TSAN_OPTIONS": tsan}
    words = ["40*r64", "5*g64", "5*x64", "y64", "c64", TOLD, "d", "t300", word(epoch=2), "10*r64", "p0", TOLD]
    for seen in ranks(2, word(1 << 20), *words, LD_PRELOAD=None, **options):
        check_joined(seen)
        assert seen.counts.written > 40
