"""Which client is chosen, and pyslurm's over a module of the shape of pyslurm 25.11 (its sources, core/job/job.pyx)."""

import importlib
import importlib.metadata
import sys

import pytest

from greyhound.slurm import choose
from greyhound.slurm.choose import connect, release
from greyhound.slurm.client import CommandClient, SlurmError
from greyhound.slurm.pyslurm_client import PyslurmClient
from tests.slurm.test_client import program

# What it keeps lies in `calls`; jobs are as slurmctld has them: raw numbers.
PYSLURM = """
calls = []

class PyslurmError(Exception):
    pass

class RPCError(PyslurmError):
    def __init__(self, errno=-1, msg=None):
        self.errno, self.msg = errno, msg
        super().__init__(msg)

class JobSubmitDescription:
    def __init__(self, **changes):
        self.changes = changes

class Job:
    account = partition = name = comment = user_name = allocated_nodes = array_tasks_waiting = None
    array_id = array_task_id = heterogeneous_id = heterogeneous_offset = None
    state = "RUNNING"

    def __init__(self, job_id, **values):
        self.id = job_id
        self.__dict__.update(values)

    @staticmethod
    def load(job_id):
        if job_id == 99:
            raise RPCError(-1, "Unable to contact slurm controller (connect failure)")
        found = Jobs.load().get(job_id)
        if found is None:
            raise RPCError(2017, "Invalid job id specified")
        return found

    def modify(self, changes):
        calls.append(("modify", self.id, changes.changes))

    def notify(self, msg):
        calls.append(("notify", self.id, msg))

class Jobs(dict):
    @staticmethod
    def load(preload_passwd_info=False, frozen=False):
        jobs = [
            Job(12, name="a|b\\n<script>", user_name="ann", allocated_nodes="n[1-2]", comment="mine"),
            Job(21, array_id=20, array_task_id=3, name="t", user_name="ann"),
            Job(20, array_id=20, array_tasks_waiting="4-9", state="PENDING", user_name="ann"),
            Job(31, heterogeneous_id=30, heterogeneous_offset=1, user_name="bob"),
            Job(13, state="COMPLETED", user_name="bob"),
        ]
        return Jobs({job.id: job for job in jobs})

class Node:
    def __init__(self, name):
        self.name, self.address = name, "10.0.0.7" if name == "n1" else None

    @staticmethod
    def load(name):
        if name == "n9":
            raise RPCError(msg="Node 'n9' does not exist")
        return Node(name)
"""


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Puts a pyslurm of a release, and a squeue that names one, before everything else."""

    def make(own="25.11.2", running="slurm 25.11.4", text=PYSLURM):
        packages, programs = tmp_path / "packages", tmp_path / "bin"
        for folder in (packages / "pyslurm", packages / f"pyslurm-{own}.dist-info", programs):
            folder.mkdir(parents=True)
        (packages / "pyslurm" / "__init__.py").write_text(text)
        (packages / f"pyslurm-{own}.dist-info" / "METADATA").write_text(f"Name: pyslurm\nVersion: {own}\n")
        program(programs, "squeue", f'echo "{running}"')
        monkeypatch.syspath_prepend(str(packages))
        importlib.invalidate_caches()
        monkeypatch.delitem(sys.modules, "pyslurm", raising=False)
        return {"PATH": str(programs)}

    yield make
    sys.modules.pop("pyslurm", None)


@pytest.fixture
def client(site):
    found, why = connect(site())
    assert why == "" and isinstance(found, PyslurmClient)
    return found


def test_pyslurm_of_this_release_is_taken(client):
    assert client.job_state("12") == "RUNNING"


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ({"running": "slurm-wlm 24.11.5"}, "pyslurm 25.11.2 is for another release than slurm-wlm 24.11.5"),
        ({"running": "what?"}, "is for another release than what?"),
        ({"text": "raise ImportError('libslurm.so.44: cannot open')"}, "can't be imported: ImportError: libslurm"),
        ({"text": "import os; os._exit(1)"}, "pyslurm can't be imported: exit code 1"),
        ({"text": "import os; os.abort()"}, "pyslurm can't be imported: exit code -6"),
        ({"text": "Job = Jobs = None"}, "has no attribute 'Node'"),
    ],
)
def test_any_other_leaves_the_commands(site, made, said):
    found, why = connect(site(**made))
    assert isinstance(found, CommandClient) and said in why
    assert "pyslurm" not in sys.modules


def test_one_that_hangs_at_its_import_leaves_the_commands(site, monkeypatch):
    monkeypatch.setattr(choose, "IMPORT_TIMEOUT_S", 0.5)
    found, why = connect(site(text="import time; time.sleep(600)"))
    assert isinstance(found, CommandClient) and "timed out" in why


def test_without_pyslurm_slurm_is_not_even_asked(tmp_path, monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(choose.importlib.metadata, "version", missing)
    program(tmp_path, "squeue", f"touch {tmp_path}/called")
    found, why = connect({"PATH": str(tmp_path)})
    assert isinstance(found, CommandClient) and why == "pyslurm isn't installed"
    assert not (tmp_path / "called").exists()


def test_without_commands_the_release_is_not_known(site, monkeypatch):
    monkeypatch.setattr("greyhound.slurm.client.SEARCH", "")
    site()
    found, why = connect({"PATH": "/nowhere"})
    assert isinstance(found, CommandClient) and "Slurm's release isn't known: no squeue" in why


def test_releases():
    assert release("slurm-wlm 22.05.8") == release("22.05.1") == (22, 5)
    assert release("slurm") is None


def test_states_and_numbers_of_tasks_and_components(client):
    assert [client.job_number(job) for job in ("12", "20_3", "30+1")] == [12, 21, 31]
    assert [client.job_state(job) for job in ("12", "13", "14", "20_4")] == [
        "RUNNING",
        "COMPLETED",
        "UNKNOWN",
        "UNKNOWN",
    ]
    with pytest.raises(SlurmError, match="job 99: Unable to contact"):
        client.job_state("99")


def test_the_queue_has_what_is_not_over(client):
    found = {str(job.job): (job.state, job.user, job.node_list, job.name) for job in client.queue()}
    assert found["12"] == ("RUNNING", "ann", "n[1-2]", "a|b\n<script>")
    assert sorted(found) == ["12", "20_3", "20_[4-9]", "30+1"]


def test_comments_and_lines_in_a_job_s_output(client):
    calls = sys.modules["pyslurm"].calls
    assert (client.comment("12"), client.comment("20")) == ("mine", "")
    client.set_comment("12.0", "mine; it's\n$HOME")
    client.notify("12", "slow\nn1:0 \x1b[31m")
    assert calls == [("modify", 12, {"comment": "mine; it's\n$HOME"}), ("notify", 12, "slow n1:0  [31m")]


def test_node_addresses(client):
    assert client.node_address("n1") == "10.0.0.7"
    for node, said in (("n9", "does not exist"), ("n2", "no NodeAddr"), ("n1,n2", "node name")):
        with pytest.raises(SlurmError, match=said):
            client.node_address(node)
