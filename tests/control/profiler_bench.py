"""A master whose job of two nodes is played over a bus in memory, with clocks by hand."""

import time

from greyhound.config import Settings
from greyhound.control.arguments import NodeArguments
from greyhound.control.bus import MemoryBus
from greyhound.control.events import read_events
from greyhound.control.master import Master
from greyhound.control.messages import Hello, IterationBatch, Message, RankSample, Report, decode, encode
from greyhound.control.names import StepName
from greyhound.control.profile_message import ProfileOrder, in_messages
from greyhound.control.record import Record
from greyhound.control.status import read_status
from greyhound.localize.model import RankProfile, Suspect, Verdict

S = 1_000_000_000
GPU = Suspect("gpu", (1,), (2,), "0000:0b:00.0", -1, 1.9, 0.97, 0.9, ("own time 1.9 x", "clocks: power cap"))
SLOW = Verdict((GPU,), 0.97)


class Judge:
    """Gives the verdicts in turn, the last one for ever; keeps what it was asked."""

    def __init__(self):
        self.verdicts = [Verdict()]
        self.asked = []

    def __call__(self, now, reference, lost_s):
        self.asked.append((list(now), reference, lost_s))
        verdict = self.verdicts.pop(0) if len(self.verdicts) > 1 else self.verdicts[0]
        if isinstance(verdict, BaseException):
            raise verdict
        return verdict


class ProfilerBench:
    def __init__(self, folder, monkeypatch, nodes=2):
        (folder / "step").mkdir()
        (folder / "record").mkdir()
        self.record = folder / "record"
        self.live = folder / "step" / "status.json"
        self.judge = Judge()
        arguments = NodeArguments(folder / "step", 0, nodes, "n[0-1]", StepName("7", "0", 0), Settings(), None, 4)
        self.mono_s, self.wall_s = 5000.0, 1_700_000_000.0
        monkeypatch.setattr("greyhound.control.master.time.time", lambda: self.wall_s)
        monkeypatch.setattr("greyhound.control.master.time.monotonic", lambda: self.mono_s)
        self.master = Master(arguments, Record(self.record, "", None), judge=self.judge)
        self.bus = MemoryBus()
        self.ears = MemoryBus(self.bus)
        self.iteration, self.seconds, self.healthy_s = 5, 1.0, 1.0
        self.calls, self.alive, self.work = 600, 4, "work"
        self.answering = {0, 1}
        self.orders = []
        for node in range(2):
            self.send(node, Hello(f"n{node}", "host", 1))

    def send(self, node, data):
        self.bus.publish("up", encode(Message(node, 1, 0, data)))

    def batch(self, node):
        ranks = [rank for rank in (2 * node, 2 * node + 1) if rank < self.alive]
        rest = (self.iteration, self.seconds, self.healthy_s, 0, self.work, self.calls)
        return IterationBatch("tracking", [RankSample(f"ring{rank}", rank, True, True, *rest) for rank in ranks])

    def run(self, seconds):
        """Rounds of a second; nodes answer orders at the end of their window."""
        for _ in range(round(seconds)):
            self.mono_s += 1.0
            self.wall_s += 1.0
            self.iteration += 1
            for node in range(2):
                self.send(node, self.batch(node))
            self.listen()
            self.master.round(self.bus, 0.0)
            for _ in range(200):  # the judge's thread
                judging = self.master._profiler._judging
                if judging is None or judging.is_over:
                    break
                time.sleep(0.005)
        return self.kinds()

    def listen(self):
        for text in self.ears.read("down"):
            data = decode(text).data
            if isinstance(data, ProfileOrder):
                self.orders.append((data, self.mono_s))
        if self.orders and self.mono_s >= self.orders[-1][1] + self.orders[-1][0].seconds + 1:
            for node in self.answering:
                self.answer(node, self.orders[-1][0].run)

    def answer(self, node, run, why_not=""):
        ranks = [rank for rank in (2 * node, 2 * node + 1) if rank < self.alive]
        for part in in_messages(run, [profile(rank) for rank in ranks], why_not):
            self.send(node, part)

    def slow(self, number=1):
        self.seconds = 1.9
        for rank in range(4):
            since = self.iteration - 5
            at = (since, int(self.wall_s - 8) * S, self.iteration, int(self.wall_s) * S)
            self.send(rank // 2, Report(f"ring{rank}", rank, "opened", *at, 1.0, 1.9, 1.9, 0.0))

    def recover(self):
        self.seconds = 1.0
        for rank in range(4):
            at = (0, 0, self.iteration, int(self.wall_s) * S)
            self.send(rank // 2, Report(f"ring{rank}", rank, "closed", *at, 1.0, 1.9, 1.9, 20.0))

    def events(self, *kinds):
        return [event for event in read_events(self.record / "events.jsonl") if event["kind"] in kinds]

    def kinds(self):
        return [event["kind"] for event in self.events("profile", "verdict", "suspect", "recovered")]

    def status(self):
        self.master.publish_status(force=True)
        return read_status(self.live)


def profile(rank):
    times = ((1.0, 1.0), (0.5, 0.5), (0.0, 0.0), (0.0, 0.0))
    return RankProfile(0, f"ring{rank}", rank, f"0000:{rank:02x}:00.0", "work", True, *times)
