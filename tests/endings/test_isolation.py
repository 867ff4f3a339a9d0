"""Two ordinary users on one node: neither reads, changes or stops anything of the other's watch."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest

from greyhound.control import rendezvous
from greyhound.control.names import StepName, bus_prefix
from tests.endings.bed import SHM, Bed, Step, of_directory, until
from tests.endings.ways import MASTER, NODE, REDIS

pytestmark = pytest.mark.cluster
OWNER, STRANGER = 65534, 5  # nobody and games: two users that every Debian has


def as_user(uid: int) -> list[str]:
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]


@pytest.fixture(scope="module")
def step(bed: Bed) -> Iterator[Step]:
    """A watched step of OWNER's, seen by its master."""
    step = bed.srun(True, prefix=as_user(OWNER), uid=OWNER)
    try:
        step.wait_for_ranks()
        yield step
    finally:
        step.enough()
        assert step.wait() == 0, step.errors
        step.assert_nothing_left()


def port_of(step: Step) -> int:
    [connection] = [one for one in psutil.Process(step.one(REDIS)).net_connections("tcp") if one.status == "LISTEN"]
    return int(connection.laddr.port)


def record_of(step: Step) -> Path:
    return step.bed.sandbox.layout.records / str(step.job) / "0.0"


def attempts(step: Step, uid: int) -> list[str]:
    directory = step.node_dir(0)
    pids = [step.one(name) for name in (NODE, MASTER, REDIS)]
    prefix = bus_prefix(OWNER, StepName(str(step.job), "0", 0))
    arguments = [directory, record_of(step), port_of(step), prefix, *pids]
    command = [*as_user(uid), sys.executable, "-I", Path(__file__).with_name("stranger.py"), *arguments]
    rings = " ".join(path.name for path in directory.glob("ring.*"))
    assert rings
    done = subprocess.run(list(map(str, command)), input=rings, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_stranger_gets_nowhere_and_the_owner_everywhere_but_into_redis(step: Step):
    before = step.ours(REDIS)
    assert attempts(step, STRANGER) == []
    own = attempts(step, OWNER)
    for wanted in ("list ", "read ", "write ", "ptrace ", "signal ", "open /proc/", "enter redis.sock", "enter /proc/"):
        assert any(one.startswith(wanted) for one in own), (wanted, own)
    assert not any(one.startswith(("redis ", "log in ")) for one in own)  # the password is nowhere to be read
    assert step.ours(REDIS) == before


def test_the_token_is_in_no_command_line_no_file_and_no_task(step: Step):
    environ = Path(f"/proc/{step.one(NODE)}/environ").read_bytes()
    token = dict(item.split(b"=", 1) for item in environ.split(b"\0") if b"=" in item)[b"GREYHOUND_TOKEN"].decode()
    secrets = [token]
    for k in range(rendezvous.TRIES):
        candidate = rendezvous.candidate(rendezvous.token_bytes(token), k)
        secrets += [candidate.password, candidate.greeting, candidate.identity]
    shown = "".join(Path(path).read_bytes().decode(errors="replace") for path in Path("/proc").glob("[0-9]*/cmdline"))
    shown += "".join(Path(f"/proc/{pid}/environ").read_bytes().decode() for pid in step.pids)
    for folder in (*step.directories, record_of(step), step.bed.sandbox.layout.logs):
        files = (path for path in folder.rglob("*") if path.is_file())
        shown += "".join(path.read_bytes().decode(errors="replace") for path in files)
    assert not [secret for secret in secrets if secret in shown]


def test_none_of_our_processes_leaves_a_core(step: Step):
    ours = [process for directory in step.directories for process in of_directory(str(directory))]
    assert len(ours) >= 4
    limits = [Path(f"/proc/{process.pid}/limits").read_text().splitlines() for process in ours]
    cores = [line.split()[4:6] for lines in limits for line in lines if line.startswith("Max core file size")]
    assert cores == [["0", "0"]] * len(ours)


def test_the_commands_tell_a_stranger_nothing(step: Step):
    command = [*as_user(STRANGER), sys.executable, "-m", "greyhound", "status", str(step.job), "--json"]
    done = subprocess.run(command, env=step.bed.sandbox.env(), capture_output=True, text=True, timeout=60, cwd="/")
    assert done.returncode != 0
    assert "nothing is known" in done.stderr
    assert "Traceback" not in done.stderr


# -- things of a stranger in our places ------------------------------------------------------------


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))


def _huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


TRAPS = {
    "a folder open to all": lambda path, target: (path.mkdir(), path.chmod(0o777)),
    "a link to a folder of the owner": lambda path, target: path.symlink_to(target),
    "a link to nowhere": lambda path, target: path.symlink_to("/dev/shm/nowhere"),
    "a hard link": lambda path, target: os.link(target.with_suffix(".file"), path),
    "a FIFO": lambda path, target: os.mkfifo(path, 0o666),
    "a socket": lambda path, target: _socket(path),
    "a huge file": lambda path, target: _huge(path),
}


def lay(path: Path, trap: str, target: Path) -> None:
    """Make a trap as STRANGER: only what that user may make is one."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgroups([])
            os.setresgid(STRANGER, STRANGER, STRANGER)
            os.setresuid(STRANGER, STRANGER, STRANGER)
            TRAPS[trap](path, target)
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0, trap


@pytest.fixture
def target() -> Iterator[Path]:
    """A folder of OWNER's with something precious, and a file of STRANGER's beside it."""
    path = Path(tempfile.mkdtemp(prefix="greyhound-test-", dir="/dev/shm"))
    path.chmod(0o755)
    (path / "precious").touch()
    beside = path.with_suffix(".file")
    beside.touch()
    for one, uid in ((path, OWNER), (path / "precious", OWNER), (beside, STRANGER)):
        os.chown(one, uid, uid)
    yield path
    shutil.rmtree(path)
    beside.unlink()


@contextmanager
def allocation(bed: Bed) -> Iterator[int]:
    """A job of OWNER's without a step, so that the next step's directory is known."""
    done = bed.sandbox.run([*as_user(OWNER), "salloc", "--no-shell", "-N2"])
    assert done.returncode == 0, done.stderr
    number = re.search(r"Granted job allocation (\d+)", done.stderr)
    assert number, done.stderr
    yield int(number[1])
    bed.run("scancel", number[1])


@pytest.fixture
def job(bed: Bed) -> Iterator[int]:
    with allocation(bed) as number:
        yield number


def test_traps_in_the_step_directory_s_place_leave_the_step_unwatched_and_unharmed(bed: Bed, job: int, target: Path):
    for number, trap in enumerate(TRAPS):
        path = SHM / f"greyhound-{OWNER}-{job}.{number}.0.n0"
        lay(path, trap, target)
        try:
            command = [*as_user(OWNER), "srun", "-Q", f"--jobid={job}", "-N1", "-w", "n1", "--greyhound=on"]
            done = bed.sandbox.run([*command, "/bin/sh", "-c", "echo ran $GREYHOUND_DIR; exit 3"])
            assert (done.returncode, done.stdout) == (3, "ran\n"), (trap, done.stderr)
            lines = [line for line in done.stderr.splitlines() if "greyhound:" in line]
            assert len(lines) == 1 and f"{path}: it exists and is not" in lines[0], (trap, lines)
            assert os.path.lexists(path) and path.lstat().st_uid == STRANGER
            assert [one.name for one in target.iterdir()] == ["precious"]
        finally:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


RECORD_TRAPS = ("a folder open to all", "a link to a folder of the owner", "a FIFO")


def in_the_record_s_place(bed: Bed, target: Path, trap: str, level: int) -> None:
    """RECORD_DIR is open to all and sticky, as the sandbox's is."""
    with allocation(bed) as job:
        place = bed.sandbox.layout.records / str(job)
        if level == 1:
            place.mkdir(mode=0o777)
            place.chmod(0o777)
            os.chown(place, STRANGER, STRANGER)
        path = place / "0.0" if level else place
        lay(path, trap, target)
        try:
            step = bed.srun(True, prefix=as_user(OWNER), uid=OWNER, slurm=[f"--jobid={job}"])
            step.wait_for_ranks()
            log = (step.node_dir(0) / "events.jsonl").read_text()
            step.enough()
            assert step.wait() == 0, step.errors
            assert '"record":"/dev/shm/' in log
            assert [one.name for one in target.iterdir()] == ["precious"]
            assert not path.is_dir() or path.is_symlink() or list(path.iterdir()) == []
            step.assert_nothing_left()
        finally:
            shutil.rmtree(place) if place.is_dir() and not place.is_symlink() else place.unlink()


def test_traps_in_the_record_folder_s_place_are_not_written_to(bed: Bed, target: Path):
    with ThreadPoolExecutor(3) as pool:
        tried = [
            pool.submit(in_the_record_s_place, bed, target, trap, level) for trap in RECORD_TRAPS for level in (0, 1)
        ]
    for one in tried:
        one.result()


def test_listeners_of_a_stranger_on_our_ports_learn_nothing(bed: Bed):
    """The real node process of OWNER; a stranger holds the first ports of its token and keeps all that it hears."""
    text = rendezvous.new_token()
    token = rendezvous.token_bytes(text)
    folder = SHM / f"greyhound-{OWNER}-{bed.sandbox.state.first_job_id + 9999}.0.0.n0"
    heard = bed.work / "heard"
    heard.write_text("")
    os.chown(heard, STRANGER, STRANGER)
    ports = [str(rendezvous.port(token, k)) for k in range(3)]
    listener = [*as_user(STRANGER), sys.executable, "-I", str(Path(__file__).with_name("listener.py")), str(heard)]
    node = [*as_user(OWNER), sys.executable, "-I", "-m", "greyhound.control.node", "--step-dir", str(folder)]
    node += ["--node-index", "0", "--node-count", "1", "--node-list", "n1", "--step", "0", "--mode", "on"]
    node += ["--job", f"{bed.sandbox.state.first_job_id + 9999}", "--head-address", "127.0.0.1"]
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GREYHOUND_TOKEN": text}
    with ExitStack() as undo:
        stranger = subprocess.Popen([*listener, *ports], stdout=subprocess.PIPE, text=True)
        undo.callback(stranger.wait)
        undo.callback(stranger.kill)
        assert stranger.stdout and stranger.stdout.readline() == "ready\n"
        ours = subprocess.Popen(node, env=environment)
        undo.callback(shutil.rmtree, folder, ignore_errors=True)
        undo.callback(ours.wait)
        undo.callback(ours.kill)
        until(lambda: heard.read_bytes(), "the analyzer at a stranger's port")
        until(lambda: serving(str(folder), rendezvous.port(token, 3)), "our Redis at the fourth port")
        until(lambda: heard.read_bytes().count(b"greeting") >= 3, "the analyzer at all of them")
    said = heard.read_text()
    candidates = [rendezvous.candidate(token, k) for k in range(rendezvous.TRIES)]
    secrets = [secret for one in candidates for secret in (one.password, one.greeting, one.identity)]
    assert not [secret for secret in secrets if secret in said]
    until(lambda: not of_directory(str(folder)), "the end of all")


def serving(directory: str, port: int) -> bool:
    found = [process for process in of_directory(directory) if process.name().startswith("redis")]
    return any(one.laddr.port == port for process in found for one in process.net_connections("tcp"))


def test_a_stranger_cannot_remove_or_replace_what_is_ours(step: Step):
    script = f"rm -rf {step.node_dir(0)}; mv {step.node_dir(0)} /dev/shm/mine; rm -rf {record_of(step).parent}; true"
    subprocess.run([*as_user(STRANGER), "/bin/sh", "-c", script], stderr=subprocess.DEVNULL, check=True)
    assert (step.node_dir(0) / "status.json").exists()
    assert (record_of(step) / "events.jsonl").exists()
