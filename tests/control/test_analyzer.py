"""The analyzer over synthetic rings and a bus in memory: reports, refused rings, a master that isn't there."""

import errno
import os
import time

import pytest

from greyhound.control import intercept
from greyhound.control.analyzer import Analyzer
from greyhound.control.bus import MemoryBus
from greyhound.control.link import Link
from greyhound.control.messages import Bye, Hello, IterationBatch, Message, Report, Stop, decode, encode
from greyhound.trace import layout, ring
from tests.control.ring_program import CALLS, RingWriter

S = 1_000_000_000


class Bench:
    def __init__(self, folder, trace=None):
        self.bus = MemoryBus()
        self.master = MemoryBus(self.bus)
        link = Link(0, Hello("n1", "host", 1), lambda: (self.bus, False))
        self.muted_by_site = ""
        self.analyzer = Analyzer(folder, "observe", 0.1, 10, link, lambda: self.muted_by_site, trace)
        self.now_s = 100.0
        self.t_ns = time.monotonic_ns() - 1000 * S

    def poll(self, rounds=1):
        for _ in range(rounds):
            self.now_s += 1.0
            self.analyzer.poll(self.now_s)
        return self.poll_master()

    def poll_master(self):
        """What the master was sent meanwhile."""
        return [decode(text).data for text in self.master.read("up")]

    def tell(self, data):
        """A message of the master."""
        self.master.publish("down", encode(Message(-1, 1, 0, data)))

    def train(self, writer, iterations, seconds):
        for _ in range(iterations):
            for call in range(CALLS):
                self.t_ns += int(seconds * S / CALLS)
                writer.call(1024 * (1 + call), self.t_ns)


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    yield made
    made.analyzer.finish("end of the test")


def of_kind(messages, kind):
    return [message for message in messages if isinstance(message, kind)]


def test_healthy_slow_healthy(bench, tmp_path):
    writer = RingWriter(tmp_path, 3)
    messages = bench.poll()
    assert isinstance(messages[0], Hello)
    assert writer.mode == layout.GH_MODE_OBSERVE
    for iterations, seconds in ((60, 1.0), (40, 1.5), (40, 1.0)):
        for _ in range(iterations // 10):
            bench.train(writer, 10, seconds)
            messages += bench.poll()
    opened, closed = of_kind(messages, Report)
    assert (opened.what, closed.what, opened.rank, opened.key) == ("opened", "closed", 3, writer.path.name)
    assert abs(opened.onset - 60) <= 1
    assert opened.at - opened.onset < 10
    assert opened.slowdown == pytest.approx(1.5, rel=0.02)
    assert abs(closed.at - 100) <= 1
    assert closed.lost_s == pytest.approx(20.0, rel=0.1)
    assert (closed.at_ns - opened.onset_ns) / S == pytest.approx(60.0, rel=0.1)
    last = of_kind(messages, IterationBatch)[-1]
    assert last.state == "tracking"
    (sample,) = last.ranks
    assert sample.locked and sample.alive
    assert sample.seconds == pytest.approx(1.0, rel=0.01)
    assert sample.healthy_s == pytest.approx(1.0, rel=0.01)


def test_master_heartbeat_reaches_the_hook(bench, tmp_path):
    writer = RingWriter(tmp_path, 0)
    bench.poll()
    assert writer.master_heartbeat_ns == 0
    bench.master.beat()
    before_ns = time.monotonic_ns()
    bench.poll()
    assert before_ns <= writer.master_heartbeat_ns <= time.monotonic_ns()


def test_bad_rings_are_refused_once_and_others_go_on(bench, tmp_path):
    good = RingWriter(tmp_path, 0)
    whole = good.path.read_bytes()
    (tmp_path / "ring.1.1").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "ring.2.2").write_bytes(b"x" * len(whole))
    (tmp_path / "ring.3.3").symlink_to("/etc/passwd")
    (tmp_path / "ring.4.4").mkdir()
    foreign = tmp_path / "ring.5.5"
    foreign.write_bytes(whole)
    if os.geteuid() == 0:
        os.chown(foreign, 12345, 12345)
    else:
        foreign.chmod(0)
    messages = bench.poll(2)
    bench.train(good, 40, 1.0)
    messages += bench.poll(2)
    batches = of_kind(messages, IterationBatch)
    notices = [notice for batch in batches for notice in batch.notices]
    assert len(notices) == 5
    for name in ("ring.1.1: truncated", "ring.2.2: not a ring", "ring.3.3", "ring.4.4", "ring.5.5"):
        assert sum(name in notice for notice in notices) == 1
    assert [sample.locked for sample in batches[-1].ranks] == [True]


def test_unready_ring_is_waited_for(bench, tmp_path):
    path = tmp_path / "ring.9.9"
    path.write_bytes(b"")
    messages = bench.poll(5)
    assert [notice for batch in of_kind(messages, IterationBatch) for notice in batch.notices] == []
    messages = bench.poll(40)
    notices = [notice for batch in of_kind(messages, IterationBatch) for notice in batch.notices]
    assert len(notices) == 1
    assert "still empty" in notices[0]
    path.unlink()
    RingWriter(tmp_path, 0).path.rename(path)
    assert len(of_kind(bench.poll(2), IterationBatch)[-1].ranks) == 1


@pytest.mark.parametrize("call", ["open", "mmap"])
@pytest.mark.parametrize("shortage", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_passing_shortage_costs_no_rank_its_monitoring(bench, tmp_path, monkeypatch, call, shortage):
    writer = RingWriter(tmp_path, 0)

    def refused(*arguments, **keywords):
        raise OSError(shortage, os.strerror(shortage))

    with monkeypatch.context() as patch:
        patch.setattr(ring.os if call == "open" else ring.mmap, call, refused)
        batches = of_kind(bench.poll(3), IterationBatch)
    assert [(batch.ranks, batch.notices) for batch in batches] == [([], [])] * 3
    bench.train(writer, 40, 1.0)
    batch = of_kind(bench.poll(2), IterationBatch)[-1]
    assert [sample.locked for sample in batch.ranks] == [True]
    assert batch.notices == []


def test_shortage_while_the_reader_is_loaded_passes_as_well(bench, tmp_path, monkeypatch):
    RingWriter(tmp_path, 0)

    def refused():
        raise OSError("libgreyhound_reader.so: cannot open shared object file: Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(ring, "load_reader", refused)
        assert of_kind(bench.poll(2), IterationBatch)[-1].ranks == []
    assert len(of_kind(bench.poll(2), IterationBatch)[-1].ranks) == 1


def test_shortage_while_looking_for_missed_processes_is_no_failure(tmp_path, monkeypatch):
    def refused(path):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(intercept.os, "scandir", refused)
    assert not intercept.InterceptCheck(tmp_path).missed(1.0)


def test_ring_that_cannot_be_mapped_is_refused(bench, tmp_path, monkeypatch):
    RingWriter(tmp_path, 0)

    def refused(*arguments, **keywords):
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))

    monkeypatch.setattr(ring.mmap, "mmap", refused)
    (batch, _) = of_kind(bench.poll(2), IterationBatch)
    assert "ring refused" in batch.notices[0] and "No such device" in batch.notices[0]


def test_ended_rank_is_not_alive(bench, tmp_path):
    writer = RingWriter(tmp_path, 0)
    bench.train(writer, 40, 1.0)
    assert of_kind(bench.poll(), IterationBatch)[-1].ranks[0].alive
    writer.end()
    assert not of_kind(bench.poll(), IterationBatch)[-1].ranks[0].alive


def test_ring_of_an_ended_rank_is_freed_after_a_while(bench, tmp_path):
    writer = RingWriter(tmp_path, 0)
    bench.poll()
    writer.end()
    assert len(of_kind(bench.poll(5), IterationBatch)[-1].ranks) == 1
    assert of_kind(bench.poll(70), IterationBatch)[-1].ranks == []
    assert not writer.path.exists()


def test_obeys_stop_and_ignores_what_it_does_not_know(bench, caplog):
    caplog.set_level("INFO")
    bench.poll()
    for text in ("rubbish", *2 * ['{"v":1,"kind":"levitate","node":-1,"seq":1,"t_ns":1,"data":{}}']):
        bench.master.publish("down", text)
    bench.poll()
    assert bench.analyzer.stop_reason == ""
    assert caplog.text.count("levitate") == 1
    bench.master.publish("down", encode(Message(-1, 1, 1, Stop("enough"))))
    bench.poll()
    assert bench.analyzer.stop_reason == "enough"
    bench.analyzer.finish("enough")
    assert isinstance(decode(bench.master.read("up")[-1]).data, Bye)


class CountingWatch:
    """A rank of a node of very many."""

    pid, lost_records, muted_calls = 0, 0, 0

    def __init__(self):
        self.polls = 0
        self.modes = []

    def poll(self):
        self.polls += 1
        return []

    def set_mode(self, mode):
        self.modes.append((mode, self.polls))


@pytest.mark.parametrize(("ranks", "rounds"), [(16, 1), (130, 9), (512, 20), (2000, 20)])
def test_very_many_rings_are_read_in_turn_and_all_before_a_change_of_mode(bench, ranks, rounds):
    watches = {f"ring{number}": CountingWatch() for number in range(ranks)}
    bench.analyzer._watches.update(watches)
    bench.analyzer._slow_due_s = 1e9
    bench.poll(rounds)
    assert min(watch.polls for watch in watches.values()) >= 1
    bench.poll(47)
    polls = [watch.polls for watch in watches.values()]
    assert max(polls) - min(polls) <= 1
    before = {name: watch.polls for name, watch in watches.items()}
    bench.muted_by_site = "why"
    bench.poll()
    assert all(
        watch.modes[-1][0] == layout.GH_MODE_MUTED and watch.modes[-1][1] > before[name]
        for name, watch in watches.items()
    )
    bench.analyzer._watches.clear()
