"""Installing into a real Slurm, upgrading and uninstalling while jobs are handed in."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from greyhound.sandbox.cluster import Sandbox
from greyhound.slurm.install import with_line, without_lines, write_config
from tests.endings.bed import until

OTHERS = "# our site\nrequired /opt/other.so a=b\n"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Sandbox]:
    """A cluster of one node whose plugstack.conf may be edited."""
    cluster = Sandbox.up(f"install-{os.getpid()}", nodes=1)
    yield cluster
    cluster.down()


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """A prefix with a python."""
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return tmp_path


def greyhound(cluster: Sandbox, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "greyhound", "slurm", *arguments]
    return subprocess.run(command, env=cluster.env(), capture_output=True, text=True, timeout=120, check=False)


class Submitter:
    """Hands in a small job or step again and again, from a thread; none may be refused."""

    def __init__(self, submit: Callable[[], subprocess.CompletedProcess[str]]) -> None:
        self._submit = submit
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self.answers: list[subprocess.CompletedProcess[str]] = []

    def _work(self) -> None:
        while not self._stop.wait(0.2):
            self.answers.append(self._submit())

    def __enter__(self) -> "Submitter":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()
        refused = [answer for answer in self.answers if answer.returncode != 0]
        assert not refused, refused[0]


def steps(cluster: Sandbox, *options: str) -> Submitter:
    """`srun`, which must have run."""

    def submit() -> subprocess.CompletedProcess[str]:
        done = cluster.srun(*options, "echo", "ran")
        assert done.returncode != 0 or done.stdout == "ran\n", done
        return done

    return Submitter(submit)


def scripts(cluster: Sandbox, folder: Path) -> Submitter:
    """`sbatch` of a script that carries the option, with a step in it that inherits it."""
    script = folder / "job.sh"
    script.write_text("#!/bin/sh\n#SBATCH --greyhound=on\n#SBATCH --output=/dev/null\nsrun true\n")
    return Submitter(lambda: cluster.run(["sbatch", "--parsable", str(script)]))


@pytest.mark.cluster
def test_no_submission_is_refused_while_the_plugin_comes_and_goes_twice(cluster: Sandbox, prefix: Path) -> None:
    cluster.layout.plugstack.write_text("# nothing yet\n")
    where = [f"--prefix={prefix}", f"--plugstack={cluster.layout.plugstack}"]
    with steps(cluster) as plain:
        assert greyhound(cluster, "install", *where).returncode == 0
        with steps(cluster, "--greyhound=on") as asking, scripts(cluster, prefix) as batch:
            for _ in range(2):
                for command in ("upgrade", "uninstall", "install"):
                    done = greyhound(cluster, command, *where)
                    assert done.returncode == 0, done.stderr
    assert min(len(kind.answers) for kind in (plain, asking, batch)) > 5
    jobs = ",".join(answer.stdout.strip() for answer in batch.answers)
    until(lambda: states(cluster, jobs) == {"COMPLETED"}, lambda: f"their end: {states(cluster, jobs)}", 60, 0.3)
    assert cluster.layout.plugstack.read_text().count("spank_greyhound.so") == 1
    assert "max_mode=observe" in cluster.layout.plugstack.read_text()


def states(cluster: Sandbox, jobs: str) -> set[str]:
    """Of these jobs and of their steps."""
    return set(cluster.run(["sacct", "-nP", "-o", "State", "-j", jobs]).stdout.split())


@pytest.mark.cluster
def test_the_stub_accepts_the_option_and_says_so(cluster: Sandbox, prefix: Path) -> None:
    cluster.layout.plugstack.write_text(OTHERS.replace("required", "optional"))
    where = [f"--prefix={prefix}", f"--plugstack={cluster.layout.plugstack}"]
    assert greyhound(cluster, "install", *where).returncode == 0
    assert greyhound(cluster, "uninstall", *where).returncode == 0
    done = cluster.srun("--greyhound=on,threshold=0.05", "sh", "-c", "echo ran $LD_PRELOAD")
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert done.stderr.count("greyhound: disabled by the site") == 1
    assert "disabled" not in cluster.srun("true").stderr
    assert greyhound(cluster, "uninstall", "--remove-line", *where).returncode == 0
    assert cluster.layout.plugstack.read_text() == OTHERS.replace("required", "optional")
    nowhere = ["--prefix=/nowhere/at/all", f"--plugstack={cluster.layout.plugstack}"]
    again = greyhound(cluster, "uninstall", *nowhere)
    assert again.returncode == 1 and "nothing is installed" in again.stderr


@pytest.mark.cluster
def test_a_dry_run_changes_nothing(cluster: Sandbox, prefix: Path) -> None:
    cluster.layout.plugstack.write_text(OTHERS)
    done = greyhound(cluster, "install", "--dry-run", f"--prefix={prefix}", f"--plugstack={cluster.layout.plugstack}")
    assert done.returncode == 0 and "would add to" in done.stdout
    assert cluster.layout.plugstack.read_text() == OTHERS
    assert not (prefix / "lib").exists()


def test_a_broken_build_leaves_the_site_as_it_was(prefix: Path, tmp_path: Path) -> None:
    conf = tmp_path / "plugstack.conf"
    conf.write_text(OTHERS)
    command = [sys.executable, "-m", "greyhound", "slurm", "install", f"--prefix={prefix}", f"--plugstack={conf}"]
    done = subprocess.run([*command, f"--slurm-include={tmp_path}"], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "spank.h was not found" in done.stderr
    assert conf.read_text() == OTHERS and not (prefix / "lib").exists()


def test_the_stub_takes_the_plugins_place_where_no_slurm_answers(prefix: Path) -> None:
    library = prefix / "lib" / "greyhound"
    library.mkdir(parents=True)
    (library / "spank_greyhound.so").write_text("plugin")
    (library / "spank_greyhound_stub.so").write_text("stub")
    command = [sys.executable, "-m", "greyhound", "slurm", "uninstall", f"--prefix={prefix}"]
    done = subprocess.run(command, env={"PATH": "/nowhere"}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (library / "spank_greyhound.so").read_text() == "stub"


def test_another_prefix_is_not_overwritten(prefix: Path, tmp_path: Path) -> None:
    conf = tmp_path / "plugstack.conf"
    conf.write_text("optional /opt/gh/lib/greyhound/spank_greyhound.so\n")
    command = [sys.executable, "-m", "greyhound", "slurm", "install", f"--prefix={prefix}", f"--plugstack={conf}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "/opt/gh" in done.stderr


def test_a_line_in_an_included_file_goes_and_links_stay(prefix: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "ours").write_text(f"{OTHERS}optional {prefix}/lib/greyhound/spank_greyhound.so\n")
    (shared / "all").write_text(f"include {shared}/ours\n")
    conf = tmp_path / "plugstack.conf"
    conf.symlink_to(shared / "all")
    where = [f"--prefix={prefix}", f"--plugstack={conf}"]
    command = [sys.executable, "-m", "greyhound", "slurm", "uninstall", "--remove-line", *where]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (shared / "ours").read_text() == OTHERS
    write_config(conf, "# new\n")
    assert conf.is_symlink() and (shared / "all").read_text() == "# new\n"


@pytest.mark.parametrize(("name", "words"), [("sp ace", "blank"), ("empty", "bin/python is missing")])
def test_a_prefix_that_no_node_could_use_is_refused(tmp_path: Path, name: str, words: str) -> None:
    conf = tmp_path / "plugstack.conf"
    (tmp_path / name).mkdir()
    where = [f"--prefix={tmp_path / name}", f"--plugstack={conf}"]
    done = subprocess.run(
        [sys.executable, "-m", "greyhound", "slurm", "install", *where], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and words in done.stderr and not conf.exists()


def test_an_uninstall_leaves_another_prefix_alone(prefix: Path, tmp_path: Path) -> None:
    conf = tmp_path / "plugstack.conf"
    conf.write_text("optional /opt/gh/lib/greyhound/spank_greyhound.so\n")
    command = [sys.executable, "-m", "greyhound", "slurm", "uninstall", f"--prefix={prefix}", f"--plugstack={conf}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "/opt/gh" in done.stderr


def test_lines_come_and_go_and_leave_the_rest() -> None:
    line = "optional /p/lib/greyhound/spank_greyhound.so prefix=/p"
    assert without_lines(with_line(OTHERS, line)) == OTHERS
    assert with_line("", line) == line + "\n"
    assert without_lines(line + "\n") == ""
    commented = "# optional /p/spank_greyhound.so\n"
    assert without_lines(commented) == commented
