"""The node process: it never ends in silence, and STOP ends it whatever the bus does."""

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from greyhound.control import child, rendezvous
from greyhound.control.events import read_events
from greyhound.control.note import PATIENCE_S, MasterSearch, Note
from greyhound.control.status import read_status
from tests.control.helpers import environment, wait_for

pytestmark = pytest.mark.usefixtures("native")

TOKEN = rendezvous.new_token()
BROKEN = """
import sys
from greyhound.control import analyzer, node
def poll(self, now_s):
    raise UnicodeDecodeError("utf-8", b"\\xff", 0, 1, "a fault of ours")
analyzer.Analyzer.poll = poll
sys.exit(node.main())
"""


@pytest.fixture
def step_dir():
    path = Path(f"/dev/shm/greyhound-{os.getuid()}-local-test{os.getpid()}.0.0.n0")
    path.mkdir(mode=0o700)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def start(step_dir, tmp_path):
    """A node process of a step of two nodes; `how` replaces `-m greyhound.control.node`."""
    started = []

    def begin(*how, index=0):
        argv = [sys.executable, "-I", *(how or ("-m", "greyhound.control.node"))]
        argv += ["--step-dir", step_dir, "--node-index", index, "--node-count", 2, "--node-list", "n1,n2"]
        argv += ["--job", "local-test", "--step", 0, "--mode", "on", "--record-dir", tmp_path / "records"]
        argv += ["--head-address", "127.0.0.1"]
        started.append(subprocess.Popen([str(part) for part in argv], env=environment(tmp_path, GREYHOUND_TOKEN=TOKEN)))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.wait()


def kinds(tmp_path):
    return [event["kind"] for event in read_events(tmp_path / "records/local-test/0.0/events.jsonl")]


def test_an_unexpected_failure_is_noted_and_nothing_is_tidied_up(start, step_dir, tmp_path):
    process = start("-c", BROKEN)
    assert process.wait(timeout=60) == 1
    note = (step_dir / "unmonitored").read_text()
    assert note.startswith("the node process failed: UnicodeDecodeError") and note.count("\n") == 1
    assert "a fault of ours" in note
    assert "Traceback" in (tmp_path / "records/local-test/0.0/greyhound.log").read_text()
    assert kinds(tmp_path)[-1] == "unmonitored"
    assert read_status(tmp_path / "records/local-test/0.0/status.json")["reason"] + "\n" == note


def test_a_missing_package_is_noted(start, step_dir, tmp_path):
    script = "import sys; sys.modules['numpy'] = None; from greyhound.control import node; sys.exit(node.main())"
    assert start("-c", script, index=1).wait(timeout=60) == 1
    assert (step_dir / "unmonitored").read_text().startswith("the analyzer can't be loaded: ")


@pytest.mark.parametrize("answer", [b"+\xff\xfe\r\n", b"$64\r\n", b"-ERR\r\n"])
@pytest.mark.parametrize("pause_s", [0.0, 0.3])
def test_stop_ends_node_and_master_whatever_listens_on_the_ports(start, step_dir, tmp_path, answer, pause_s):
    """Strangers on all ports, at full speed or a byte now and then without an end."""
    over = threading.Event()
    met = set()

    def serve(connection, k):
        with connection:
            met.add(k)
            while not over.is_set():
                try:
                    for byte in answer:
                        connection.sendall(bytes([byte]))
                        time.sleep(pause_s)
                    time.sleep(0.05)
                except OSError:
                    return

    def accept(listener, k):
        while not over.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection, k), daemon=True).start()

    token = rendezvous.token_bytes(TOKEN)
    listeners = [socket.create_server(("127.0.0.1", rendezvous.port(token, k))) for k in range(rendezvous.TRIES)]
    try:
        for k, listener in enumerate(listeners):
            threading.Thread(target=accept, args=(listener, k), daemon=True).start()
        process = start()
        wait_for("the master's verdict", lambda: "unmonitored" in kinds(tmp_path))
        wait_for("the analyzer at a port", lambda: len(met) > 1)
        process.send_signal(child.STOP)
        assert process.wait(timeout=30) == 0
    finally:
        over.set()
        for listener in listeners:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
    assert not step_dir.exists()
    # A master that had to be killed writes no end.
    assert kinds(tmp_path) == ["start", "unmonitored", "end"]
    assert "Traceback" not in (tmp_path / "records/local-test/0.0/greyhound.log").read_text()


def test_a_node_without_a_master_is_noted_until_there_is_one(tmp_path, caplog):
    note = tmp_path / "unmonitored"
    search = MasterSearch(Note(tmp_path))
    search.check(False, 100.0)
    search.check(False, 100.0 + PATIENCE_S - 1)
    assert not note.exists()
    search.check(False, 100.0 + PATIENCE_S)
    assert note.read_text() == "no master: the step's first node made no communicator or is not monitored itself\n"
    search.check(True, 200.0)
    assert not note.exists()
    search.check(False, 201.0)
    for _ in range(3):
        search.check(False, 201.0 + PATIENCE_S)
    assert not note.exists(), "the master's own node says that it died"
    assert caplog.text.count("the master is out of reach") == 1


def test_a_note_that_says_more_stays(tmp_path):
    note = Note(tmp_path)
    search = MasterSearch(note)
    search.check(False, 100.0)
    note.write("the master died:\n signal 9")
    search.check(False, 1000.0)
    search.check(True, 1001.0)
    assert (tmp_path / "unmonitored").read_text() == "the master died: signal 9\n"
    Note(tmp_path / "gone").write("no trouble")
