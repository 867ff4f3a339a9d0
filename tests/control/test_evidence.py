"""Evidence from trees of /proc and /sys, and the collector's threads: they never raise, never hold anybody up."""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from greyhound.control.evidence import EvidenceCollector, Target
from greyhound.control.evidence_files import difference, number, pressure, read_text, table
from greyhound.control.evidence_linux import RANKS_A_ROUND, LinuxSource
from greyhound.control.evidence_rdma import RdmaSource
from greyhound.control.profile_message import facts
from greyhound.localize.cause import compare, kinds
from greyhound.localize.cause_evidence import FIELDS, Reading, as_message, from_message, row, summarise
from tests.control.evidence_tree import Tree
from tests.control.helpers import wait_for

SECOND = 10**9
TARGET = Target("ring.100.7", 100, "0000:65:00.0")


@pytest.fixture
def tree(tmp_path):
    made = Tree(tmp_path)
    made.node()
    made.rank(100)
    return made


def read_twice(source, change, targets=(TARGET,), seconds=10.0):
    """Evidence of two readings, between which the tree changes."""
    first, _ = source.read(targets)
    change()
    second, absent = source.read(targets)
    return summarise([Reading(0, first), Reading(int(seconds * SECOND), second)], 0, int(seconds * SECOND), absent)


# -- Linux ---------------------------------------------------------------------------------------------------------


def test_a_contended_node_shows_in_all_that_the_kernel_counts(tree):
    def change():
        tree.node(10, cpu_share=0.7, io_share=0.1)
        tree.rank(100, 10, wait=0.4, throttled=0.6, delay=0.05)

    found = read_twice(LinuxSource(tree.root), change)
    node, rank = found.values["node"][""], found.values["rank"][TARGET.key]
    assert node == pytest.approx(
        {
            "psi_cpu_s": 0.7,
            "psi_io_s": 0.1,
            "psi_io_full_s": 0.05,
            "psi_memory_s": 0.0,
            "psi_memory_full_s": 0.0,
            "busy_s": 1.0,
            "iowait_s": 0.0,
            "steal_s": 0.05,
            "major_faults": 7.0,
            "swapped_pages": 0.0,
            "oom_kills": 0.0,
            "disk_queue_s": 0.5,
            "tcp_retransmits": 30.0,
            "tcp_segments": 1000.0,
        }
    )
    assert rank == pytest.approx(
        {
            "run_s": 0.6,
            "wait_s": 0.4,
            "throttled_s": 0.6,
            "periods": 10.0,
            "throttled_periods": 9.0,
            "psi_cpu_s": 0.3,
            "major_faults": 2.0,
            "io_delay_s": 0.05,
            "read_bytes": 1e6,
            "write_bytes": 0.0,
            "cpu_mhz": 3200.0,
        }
    )


def test_a_quota_under_cgroup_version_1_is_read_too(tree):
    tree.write("proc/self/mounts", "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\n")

    def at(seconds):
        tree.write("proc/100/cgroup", "9:name=systemd:/\n4:cpu,cpuacct:/slurm/uid_1000/job_7/step_0\n0::/\n")
        text = f"nr_periods {100 * seconds}\nnr_throttled {50 * seconds}\nthrottled_time {250_000_000 * seconds}\n"
        tree.write("sys/fs/cgroup/cpu,cpuacct/slurm/uid_1000/job_7/cpu.stat", text)

    at(0)
    rank = read_twice(LinuxSource(tree.root), lambda: at(10)).values["rank"][TARGET.key]
    assert (rank["throttled_s"], rank["throttled_periods"], rank["periods"]) == (0.25, 50, 100)
    assert "psi_cpu_s" not in rank


def test_what_the_kernel_does_not_count_is_missing(tree):
    tree.remove("proc/pressure")
    tree.remove("sys")
    tree.write("proc/sys/kernel/task_delayacct", "0\n")
    tree.write("proc/100/io", "")
    tree.write("proc/diskstats", "")
    tree.write("proc/net/snmp", "")
    for thread in (100, 101, 102):
        tree.write(f"proc/100/task/{thread}/schedstat", "0 0 0\n")
    found = read_twice(LinuxSource(tree.root), lambda: None)
    assert set(found.values["rank"][TARGET.key]) == {"major_faults"}
    assert not {name for name in found.values["node"][""] if name.startswith(("psi", "disk", "tcp"))}
    assert found.absent == {"psi": "this kernel has no /proc/pressure/cpu"}


@pytest.mark.parametrize(
    "text", ["", "garbage", "\0" * 300, "cpu x y z 1 2 3 4 5 6\ncpu0", "a:b:c\n" * 50, ")", "some total="]
)
def test_files_of_any_content_do_no_harm(tree, text):
    for path in [*tree.root.rglob("proc/**/*"), *tree.root.rglob("sys/**/*")]:
        if path.is_file():
            path.write_text(text)
    rows, _ = LinuxSource(tree.root).read((TARGET,))
    assert rows["node", ""].shape == (len(FIELDS["node"]),)


def test_a_rank_that_ended_and_one_with_its_number_do_not_mix(tree):
    source = LinuxSource(tree.root)
    tree.rank(100, 1000, wait=0.5)
    source.read((TARGET,))
    tree.remove("proc/100")
    rows, _ = source.read((TARGET,))
    assert ("rank", TARGET.key) not in rows
    tree.rank(200, 5)
    rows, _ = source.read((Target(TARGET.key, 200),))
    run = dict(zip(FIELDS["rank"], rows["rank", TARGET.key], strict=True))["run_s"]
    assert run == 0.0


def test_many_ranks_are_read_in_turn(tree):
    targets = tuple(Target(f"r{n}", 100) for n in range(150))
    source = LinuxSource(tree.root)
    seen = [{name for scope, name in source.read(targets)[0] if scope == "rank"} for _ in range(3)]
    assert [len(names) for names in seen] == [RANKS_A_ROUND] * 3
    assert len(set.union(*seen)) == 150


def test_numbers_and_tables_of_any_text():
    assert number("400 Gb/sec (4X NDR)") == 400
    assert all(number(text) != number(text) for text in ("", "  ", "n/a", "nan", "inf"))
    assert table("a 1\nb\nc 2 3\nd x\n").keys() == {"a", "d"}
    assert pressure("some avg10=1.00 total=2500000\n") == {"some": 2.5}
    assert difference(5, 9) == 0


def test_a_pipe_without_a_writer_does_not_block(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert read_text(tmp_path / "pipe") == read_text(tmp_path) == read_text(tmp_path / "absent") == ""


@pytest.fixture
def quota():
    """A real cgroup with a CPU quota of a hundredth of one core; skips where none can be made."""
    made = make_quota()
    if made is None:
        pytest.skip("no cgroup with a CPU quota can be made here")
    yield made
    wait_for("its processes to be gone", lambda: not (made / "cgroup.procs").read_text())
    made.rmdir()


def make_quota():
    name = f"greyhound-test-{os.getpid()}"
    for parent, values in (
        ("/sys/fs/cgroup/cpu", {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "1000"}),
        ("/sys/fs/cgroup", {"cpu.max": "1000 100000"}),
    ):
        folder = Path(parent, name)
        try:
            folder.mkdir()
        except OSError:
            continue
        try:
            for file, value in values.items():
                (folder / file).write_text(value)
        except OSError:
            folder.rmdir()
            continue
        return folder
    return None


def test_a_real_quota_shows_as_throttled_time(quota):
    # It spins only once it is inside.
    code = "import sys\nsys.stdin.readline()\nwhile True: pass"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, text=True)
    try:
        (quota / "cgroup.procs").write_text(str(process.pid))
        source, target = LinuxSource(), Target("r", process.pid)
        source.read((target,))
        process.stdin.write("go\n")
        process.stdin.flush()

        def throttled():
            rows, _ = source.read((target,))
            figures = dict(zip(FIELDS["rank"], rows["rank", "r"], strict=True))
            return figures if figures["throttled_s"] > 0.1 and figures["run_s"] > 0 else None

        figures = wait_for("throttled time", throttled)
        assert figures["throttled_periods"] >= 1 and figures["periods"] >= figures["throttled_periods"]
    finally:
        process.kill()
        process.wait()


# -- RDMA ----------------------------------------------------------------------------------------------------------


def test_congestion_counters_of_each_port(tree):
    tree.rdma()
    found = read_twice(RdmaSource(tree.root), lambda: tree.rdma(10, cnp_a_second=4200))
    assert found.values["nic"]["mlx5_0/1"] == {
        "gbit_s": 400.0,
        "active": 1.0,
        "cnp_handled": 4200.0,
        "out_of_sequence": 0.0,
        "sent_bytes": 4e9,
    }
    assert set(found.values["nic"]["mlx5_1/1"]) == {"gbit_s", "active", "sent_bytes"}
    assert RdmaSource(tree.root / "nowhere").read(())[1]["rdma"].startswith("no port in")


# -- the collector -------------------------------------------------------------------------------------------------


class Steps:
    """A source whose reading is told, and counted."""

    name = "steps"

    def __init__(self):
        self.count = 0
        self.targets = ()

    def read(self, targets):
        self.targets = targets
        self.count += 1
        return {("rank", target.key): row("rank", {"cpu_mhz": 3000.0}) for target in targets}, {}


class Stuck(Steps):
    name = "stuck"

    def __init__(self):
        super().__init__()
        self.freed = threading.Event()

    def read(self, targets):
        super().read(targets)
        self.freed.wait(60)
        return {}, {}


class Broken(Steps):
    name = "broken"

    def read(self, targets):
        raise ZeroDivisionError("a mistake of ours")


def test_before_and_after_can_be_compared(tree):
    tree.rdma()
    collector = EvidenceCollector(root=tree.root, period_s=0.01)
    try:
        collector.follow([TARGET])
        begin = time.time_ns()
        # With or without a driver and GPUs here: NVML has answered, too.
        wait_for("all sources", lambda: "not read yet" not in collector.between(begin, time.time_ns()).absent.values())
        wait_for("readings of the rank", lambda: collector.between(begin, time.time_ns()).names("rank"))
        found = collector.between(begin, time.time_ns())
        assert found.get("nic", "mlx5_0/1", "gbit_s") == 400
        assert ("nvml" in found.absent) != bool(found.names("gpu"))
        assert kinds(compare(found, found)) == {}
        assert collector.between(0, SECOND).values == {}
    finally:
        collector.stop()


def test_identities_come_from_the_bus_and_the_topology(tree, monkeypatch):
    tree.rdma()
    tree.gpu()
    tree.write("etc/topology.conf", "SwitchName=leaf3 Nodes=n[1-2]\n")
    monkeypatch.setenv("SLURM_CONF", str(tree.root / "etc/slurm.conf"))
    collector = EvidenceCollector(root=tree.root, period_s=0.01)
    try:
        collector.follow([TARGET])
        wait_for("the GPU's place", lambda: collector.identities("n1"))
        (identity,) = collector.identities("n1").values()
        assert identity.text() == ("n1: GPU 0000:65:00.0 (n/a), serial n/a, n/a, NIC mlx5_0/1, leaf switch leaf3")
    finally:
        collector.stop()


def test_the_message_passes_the_checks_of_messages_and_comes_back(tree):
    collector = EvidenceCollector(root=tree.root, period_s=0.01)
    try:
        collector.follow([TARGET])
        wait_for("the rank", lambda: collector.between(time.time_ns() - SECOND, time.time_ns()).names("rank"))
        sent = facts(as_message(collector.between(time.time_ns() - SECOND, time.time_ns())))
        assert from_message(json.loads(json.dumps(sent))).get("node", "", "psi_cpu_s") == 0
    finally:
        collector.stop()


def test_a_source_that_hangs_holds_up_nobody_and_is_said(monkeypatch):
    monkeypatch.setattr("greyhound.control.evidence.SILENT_S", 0.0)
    stuck, steps = Stuck(), Steps()
    collector = EvidenceCollector([stuck, steps], period_s=0.01)
    try:
        collector.follow([TARGET])
        wait_for("the other source", lambda: steps.count > 3)
        found = wait_for("the hang to be said", lambda: stuck_evidence(collector))
        assert found.absent["stuck"].startswith("no answer for")
        assert found.get("rank", TARGET.key, "cpu_mhz") == 3000
    finally:
        collector.stop()
        stuck.freed.set()


def stuck_evidence(collector):
    found = collector.between(time.time_ns() - SECOND, time.time_ns())
    return found if "stuck" in found.absent and found.names("rank") else None


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_mistake_of_ours_ends_one_reader_and_is_said():
    steps = Steps()
    collector = EvidenceCollector([Broken(), steps], period_s=0.01)
    try:
        wait_for("its end", lambda: "broken" in collector.between(0, time.time_ns()).absent)
        wait_for("the others to go on", lambda: steps.count > 3)
    finally:
        collector.stop()


def test_no_thread_to_be_had_is_said(monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    found = EvidenceCollector([Steps()]).between(0, time.time_ns())
    assert found.absent == {"steps": "no thread for it: can't start new thread"}


def test_a_step_of_the_clock_by_six_minutes_moves_no_reading(monkeypatch):
    steps = Steps()
    collector = EvidenceCollector([steps], period_s=0.01)
    real = time.time_ns
    try:
        collector.follow([TARGET])
        wait_for("readings", lambda: steps.count > 5)
        monkeypatch.setattr("greyhound.control.evidence.time.time_ns", lambda: real() + 360 * SECOND)
        now = real() + 360 * SECOND
        assert collector.between(now - 2 * SECOND, now).names("rank") == (TARGET.key,)
        monkeypatch.setattr("greyhound.control.evidence.time.time_ns", lambda: real() - 360 * SECOND)
        now = real() - 360 * SECOND
        assert collector.between(now - 2 * SECOND, now).names("rank") == (TARGET.key,)
    finally:
        collector.stop()


def test_memory_is_bounded():
    steps = Steps()
    collector = EvidenceCollector([steps], period_s=0.001, kept_s=0.05)
    try:
        wait_for("many readings", lambda: steps.count > 80)
        readings, _ = collector._readers[0].state()
        assert len(readings) <= 50
        collector.follow(Target(str(n), n) for n in range(5000))
        wait_for("the ranks", lambda: steps.targets)
        assert len(steps.targets) == 1024
    finally:
        collector.stop()
