"""Whatever is missing, foreign or broken: the job runs, and one line says why it is not watched."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.spank.rig import HOOK, Rig, build_hook, make, step_path

pytestmark = pytest.mark.cluster

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="makes another user's directory")


def assert_unmonitored(rig: Rig, *reasons: str, arguments: tuple[str, ...] = ()) -> None:
    done = rig.srun("--greyhound=on", *arguments, "/bin/sh", "-c", "echo ran $GREYHOUND_DIR $LD_PRELOAD; exit 3")
    assert (done.returncode, done.stdout) == (3, "ran\n")
    lines = [line for line in done.stderr.splitlines() if "greyhound:" in line]
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("greyhound: unmonitored: node 0: ")
    for reason in reasons:
        assert reason in lines[0]


@pytest.fixture
def own_native(rig: Rig, folder: Path) -> Path:
    """A copy of the native folder that a test may spoil."""
    path = folder / "spoiled"
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(rig.native, path)
    rig.plugstack(f"python={rig.python}", f"native={path}")
    return path


def test_the_hook_is_missing(rig: Rig, own_native: Path):
    (own_native / HOOK).unlink()
    assert_unmonitored(rig, f"hook {own_native / HOOK} is missing or can't be read there")


def test_the_hook_is_no_library(rig: Rig, own_native: Path):
    (own_native / HOOK).write_text("text")
    assert_unmonitored(rig, "loader refuses it", "file too short")


def test_the_waiter_is_missing(rig: Rig, own_native: Path):
    (own_native / "greyhound_waiter").unlink()
    assert_unmonitored(rig, f"{own_native}/greyhound_waiter: No such file")


def test_python_is_missing(rig: Rig):
    rig.plugstack("python=/nowhere/python")
    assert_unmonitored(rig, "/nowhere/python: No such file")


def test_the_site_names_no_python(rig: Rig):
    rig.plugstack()
    assert_unmonitored(rig, "no python", "prefix=DIR or python=PATH")


def test_every_node_says_which_it_is(rig: Rig):
    rig.plugstack("python=/nowhere/python")
    done = rig.srun("-N2", "--greyhound=on", "true")
    assert done.returncode == 0
    assert sorted(line[: len("greyhound: unmonitored: node 0")] for line in done.stderr.splitlines()) == [
        "greyhound: unmonitored: node 0",
        "greyhound: unmonitored: node 1",
    ]
    [first] = [line for line in done.stderr.splitlines() if "node 0" in line]
    assert first.endswith(" (so the whole step is unmonitored)")
    assert done.stderr.count("whole step") == 1


def test_beyond_the_first_nodes_the_daemon_s_log_has_the_line(rig: Rig, folder: Path):
    """So that a broken site says it a few times, not once a node."""
    few = folder / "few"
    make("plugin", f"OUT={few}", "CFLAGS=-O1 -DSPEAKING_NODES=1")
    rig.plugstack("python=/nowhere/python", f"native={rig.native}", plugin=few / "spank_greyhound.so")
    done = rig.srun("-N2", "--greyhound=on", "true")
    assert done.returncode == 0
    [line] = done.stderr.splitlines()
    assert line.startswith("greyhound: unmonitored: node 0: ")
    said = "greyhound: unmonitored: node 1: /nowhere/python: No such file"
    assert said in "".join(path.read_text() for path in rig.sandbox.layout.logs.glob("slurmd.n2.log"))


def hold_job(rig: Rig) -> int:
    """A pending allocation's id, so that a test knows the next step's directory before it runs."""
    done = rig.run("salloc", "-Q", "--no-shell", "-N1", "-w", "n1")
    assert done.returncode == 0, done.stderr
    jobs = rig.run("squeue", "-h", "-o", "%A").stdout.split()
    return max(map(int, jobs))


@pytest.fixture
def job(rig: Rig):
    number = hold_job(rig)
    yield number
    rig.run("scancel", str(number))


def test_what_a_dead_step_left_is_replaced(rig: Rig, job: int):
    path = step_path(job)
    path.mkdir(0o755)
    (path / "ring.1.1").touch()
    done = rig.srun(
        f"--jobid={job}", "--greyhound=on", "/bin/sh", "-c", "ls -A $GREYHOUND_DIR; stat -c %a $GREYHOUND_DIR"
    )
    assert (done.stdout, done.stderr) == ("700\n", "")
    assert not path.exists()


@needs_root
def test_another_user_s_directory_is_left_alone(rig: Rig, job: int):
    path = step_path(job)
    path.mkdir(0o755)
    os.chown(path, 65534, 65534)
    try:
        assert_unmonitored(rig, f"{path}: it exists and is not", arguments=(f"--jobid={job}",))
        assert path.exists()
    finally:
        path.rmdir()


def test_a_link_is_not_followed(rig: Rig, job: int, tmp_path: Path):
    (tmp_path / "precious").touch()
    path = step_path(job)
    path.symlink_to(tmp_path)
    try:
        assert_unmonitored(rig, f"{path}: it exists and is not", arguments=(f"--jobid={job}",))
    finally:
        path.unlink()
    assert (tmp_path / "precious").exists()


def doctor(plugin: Path, changed: Path) -> None:
    """The plugin as if built for Slurm 99.11: its version number, one word in .rodata, is replaced."""
    content = plugin.read_bytes()
    version = header_version()
    assert content.count(version) == 1
    changed.write_bytes(content.replace(version, (0x630B00).to_bytes(4, "little")))


def header_version() -> bytes:
    header = Path("/usr/include/slurm/slurm_version.h").read_text()
    number = header.split("SLURM_VERSION_NUMBER 0x")[1].split()[0]
    return int(number, 16).to_bytes(4, "little")


@pytest.mark.parametrize("kind", ["release", "corrupt", "missing"])
def test_with_optional_a_wrong_plugin_stops_no_job(rig: Rig, folder: Path, kind):
    wrong = folder / f"{kind}.so"
    if kind == "release":
        doctor(rig.native / "spank_greyhound.so", wrong)
    elif kind == "corrupt":
        wrong.write_bytes(b"\x7fELF rubbish")
    rig.plugstack(f"python={rig.python}", plugin=wrong)
    done = rig.srun("/bin/sh", "-c", "echo ran; exit 3", env={"GREYHOUND": "on"})
    assert (done.returncode, done.stdout) == (3, "ran\n")
    assert "unrecognized option '--greyhound=on'" in rig.srun("--greyhound=on", "true").stderr


def test_an_srun_without_the_plugin_in_a_job_that_asked_for_it(rig: Rig, folder: Path):
    """As where the batch host's plugstack.conf lacks the plugin: the option still reaches the nodes."""
    text = rig.sandbox.layout.conf.read_text()
    assert str(rig.sandbox.layout.plugstack) in text
    (folder / "empty.conf").write_text("# no plugin\n")
    bare = folder / "slurm.conf"
    bare.write_text(text.replace(str(rig.sandbox.layout.plugstack), str(folder / "empty.conf")))
    output = rig.batch("--greyhound=on", script=f"SLURM_CONF={bare} srun /bin/sh -c 'echo ran $GREYHOUND_DIR'; echo $?")
    lines = output.splitlines()
    assert lines[-2:] == ["ran", "0"]
    assert [line for line in lines if "greyhound:" in line] == [
        "greyhound: unmonitored: node 0: srun sent no decision: the plugin on its host is missing or old"
    ]


def test_the_hook_s_folder_with_a_blank_is_refused(rig: Rig, folder: Path):
    path = folder / "colon:folder"
    path.mkdir(exist_ok=True)
    build_hook(path)
    shutil.copy(rig.native / "greyhound_waiter", path)
    rig.plugstack(f"python={rig.python}", f"native={path}")
    assert_unmonitored(rig, "no path with a blank or a colon")


@pytest.mark.parametrize("copied", [False, True])
def test_a_plugin_that_is_listed_twice_watches_once(rig: Rig, folder: Path, copied):
    plugin = rig.native / "spank_greyhound.so"
    second = Path(shutil.copy(plugin, folder / "copy.so")) if copied else plugin
    lines = [f"optional {path} python={rig.python} native={rig.native}\n" for path in (plugin, second)]
    rig.sandbox.layout.plugstack.write_text("".join(lines))
    # The last task to end still finds the directory after the others have gone.
    task = "sleep 0.$((SLURM_PROCID * 3)); ls -d $GREYHOUND_DIR; echo $LD_PRELOAD"
    done = rig.srun("-N1", "--ntasks-per-node=3", "--greyhound=on", "/bin/sh", "-c", task)
    assert done.returncode == 0
    assert done.stdout.count("/dev/shm/greyhound-") == 3
    assert done.stdout.splitlines().count(str(rig.native / HOOK)) == 3
    assert "unmonitored" not in done.stderr


def test_the_hook_lacks_a_library_of_its_own(rig: Rig, own_native: Path):
    dependency = own_native / "libgone.so"
    make_library = ["cc", "-shared", "-fPIC", "-x", "c", "-"]
    subprocess.run([*make_library, "-o", dependency], input="int gone(void) { return 0; }", text=True, check=True)
    hook = "int gone(void); int used(void) { return gone(); }"
    links = ["-o", own_native / HOOK, "-x", "none", dependency]
    subprocess.run([*make_library, *links], input=hook, text=True, check=True)
    dependency.unlink()
    assert_unmonitored(rig, "loader refuses it", "libgone.so")
