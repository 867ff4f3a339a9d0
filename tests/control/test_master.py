"""The master's rounds over a bus in memory: files, heartbeat, trouble with the bus."""

import json

import pytest

from greyhound.config import Settings
from greyhound.control import master as master_module
from greyhound.control.arguments import NodeArguments, parse
from greyhound.control.bus import BusError, MemoryBus
from greyhound.control.events import read_events
from greyhound.control.master import Master
from greyhound.control.messages import Bye, Hello, IterationBatch, Message, RankSample, Report, encode
from greyhound.control.names import StepName
from greyhound.control.notify import Notifier, NotifyError
from greyhound.control.record import Record
from greyhound.control.status import read_status

S = 1_000_000_000


class FlakyBus(MemoryBus):
    broken = False

    def read(self, stream, wait_s=0.0):
        if self.broken:
            raise BusError("too late")
        return super().read(stream)


class Bench:
    def __init__(self, folder, notifier=None, settings=None, root=None):
        (folder / "step").mkdir()
        (folder / "record").mkdir()
        self.record = folder / "record"
        self.live = folder / "step" / "status.json"
        arguments = NodeArguments(folder / "step", 0, 1, "n1", StepName("7", "0", 0), settings or Settings(), None, 2)
        self.master = Master(arguments, Record(self.record, "a notice of the record", root), notifier)
        self.bus = FlakyBus()
        self.node = MemoryBus(self.bus)

    def send(self, data):
        self.node.publish("up", encode(Message(0, 1, 0, data)))

    def read(self):
        return list(read_events(self.record / "events.jsonl"))

    def events(self):
        return [event["kind"] for event in self.read()]


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


def sample(rank, iteration, seconds):
    return RankSample(f"ring{rank}", rank, True, True, iteration, seconds, 1.0, 0)


def slow(bench):
    bench.send(Hello("n1", "host", 1))
    for rank in (0, 1):
        bench.send(Report(f"ring{rank}", rank, "opened", 40, S, 44, 5 * S, 1.0, 1.5, 1.5, 0.0))
    bench.master.round(bench.bus, 0.0)
    bench.send(IterationBatch("tracking", [sample(0, 44, 1.5), sample(1, 44, 1.5)]))
    bench.master.round(bench.bus, 0.0)


def test_rounds_write_events_and_both_copies(bench):
    slow(bench)
    assert bench.node.master_alive()
    assert bench.events() == ["start", "waiting", "tracking", "suspect"]
    for copy in (bench.live, bench.record / "status.json"):
        status = read_status(copy)
        assert (status["state"], status["iteration"]) == ("suspect", 44)
        assert status["notices"] == ["a notice of the record"]
    bench.send(Bye("the step ended"))
    bench.master.drain(bench.bus)
    bench.master.finish("the step ended")
    assert bench.events()[-1] == "end"
    assert read_status(bench.live)["state"] == "ended"


def test_rubbish_on_the_bus_does_no_harm(bench, caplog):
    caplog.set_level("INFO")
    for text in ("{", *2 * ['{"v":1,"kind":"dance","node":0,"seq":1,"t_ns":1,"data":{}}']):
        bench.node.publish("up", text)
    slow(bench)
    assert caplog.text.count("dance") == 1
    assert "suspect" in bench.events()


def test_a_late_answer_is_forgiven_a_lost_redis_is_not_and_may_come_back(bench, monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr(master_module.time, "monotonic", lambda: clock[0])
    slow(bench)
    bench.bus.broken = True
    for _ in range(4):
        clock[0] += 1.0
        bench.master.round(bench.bus, 0.0)
    assert read_status(bench.live)["state"] == "suspect"
    clock[0] += 10.0
    bench.master.round(bench.bus, 0.0)
    status = read_status(bench.live)
    assert status["state"] == "unmonitored"
    assert "too late" in status["reason"]
    bench.bus.broken = False
    clock[0] += 1.0
    bench.master.round(bench.bus, 0.0)
    clock[0] += 1.0
    bench.master.round(bench.bus, 0.0)
    assert read_status(bench.live)["state"] == "suspect"
    assert bench.events().count("unmonitored") == 1


def test_user_is_told_and_a_failing_notice_is_a_log_line(tmp_path, caplog):
    told = []

    def send(text):
        told.append(text)
        raise NotifyError("no slurmctld")

    bench = Bench(tmp_path, Notifier(send))
    slow(bench)
    bench.master.finish("the step ended")
    assert "a notice of the record" in told[0]
    assert [text.split()[1] for text in told[1:]] == ["fail-slow", "ended"]
    assert caplog.text.count("no slurmctld") == 3


def test_command_line_of_node_and_master(tmp_path):
    argv = f"--step-dir {tmp_path} --node-index 1 --node-count 4 --node-list n[1-4] --job 12_3 --step 0 --restart 2 "
    argv += "--mode observe --option threshold=0.2 --option warmup=7 --record-dir /r --redis-server /opt/r --tasks 8"
    first = parse("node", argv.split())
    assert first.settings == Settings("observe", 0.2, 7, "/r", "/opt/r")
    assert (first.name, first.in_slurm) == (StepName("12_3", "0", 2), True)
    second = parse("master", first.argv("10.0.0.1"))
    assert (second.settings, second.head_address) == (first.settings, "10.0.0.1")


@pytest.mark.parametrize("extra", ["--option threshold=7", "--mode off", "--option color=red", "--node-index x"])
def test_bad_command_line_ends_with_usage(tmp_path, extra, capsys):
    argv = f"--step-dir {tmp_path} --node-index 0 --node-count 1 --node-list n1 --job 1 --step 0 --mode on {extra}"
    with pytest.raises(SystemExit) as error:
        parse("node", argv.split())
    assert error.value.code == 2
    assert extra.split()[-1].split("=")[-1] in capsys.readouterr().err


def test_status_is_json_for_programs(bench):
    slow(bench)
    assert json.loads(bench.live.read_text())["episodes"][0]["slowdown"] == 1.5


class Heard:
    """A notifier that keeps what it is told."""

    def __init__(self):
        self.lines = []

    def tell(self, text):
        self.lines.append(text)

    def finish(self, wait_s):
        self.lines.append("finished")


def test_what_the_plugin_says_at_the_end_isn_t_said_by_the_master_too(tmp_path):
    heard = Heard()
    bench = Bench(tmp_path, heard)
    heard.lines.clear()
    bench.master.abandon("the head's analyzer died")
    assert heard.lines == ["finished"]
    assert bench.events()[-1] == "unmonitored"
    assert read_status(bench.live)["reason"] == "the head's analyzer died"


def test_a_death_that_is_mended_is_told_once(tmp_path):
    heard = Heard()
    bench = Bench(tmp_path, heard)
    heard.lines.clear()
    for _ in range(2):
        bench.master.tell("redis-server died: signal 9; started again")
    assert heard.lines == ["redis-server died: signal 9; started again"]
    assert heard.lines[0] in bench.master.job.notices


def test_nobody_waits_for_the_goodbye_of_an_analyzer_that_died(tmp_path, monkeypatch):
    bench = Bench(tmp_path)
    bench.send(Hello("n1", "host", 1))
    bench.master.round(bench.bus, 0.0)
    bench.send(IterationBatch("tracking", [sample(0, 44, 1.5)]))
    monkeypatch.setattr(bench.bus, "others", lambda: 0)
    monkeypatch.setattr(master_module, "DRAIN_S", 1e9)
    bench.master.drain(bench.bus)
    assert bench.master.job.nodes[0].samples, "what it has said before is heard"
