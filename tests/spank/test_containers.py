"""Tasks that another plugin, or srun's own command, gave a root or a /dev/shm of their own."""

import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hook.conftest import build_hook
from tests.spank.cheap import DONE, NATIVE, build_rank, link
from tests.spank.rig import HOOK, Rig, make, until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(os.getuid() != 0, reason="makes mount namespaces"),
]
HURRY = "-DBYPASS_SCAN_MS=200 -DBYPASS_PATIENCE_MS=60000"
PROGRAMS = ("/bin/true", "/bin/sh", "/bin/sleep")


@pytest.fixture(scope="module")
def native(folder: Path) -> Path:
    """The real hook, a waiter in a hurry, and the plugin that plays the container runtime."""
    out = folder / "containers"
    make("all", f"OUT={out}", f"CFLAGS=-O1 {HURRY}")
    build_hook(out)
    link(out / "container.so", "-shared", "-fPIC", NATIVE / "container.c")
    build_rank(out)
    return out


def copy_into(root: Path, *files: Path | str) -> None:
    for file in map(str, files):
        target = Path(f"{root}{file}")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)


def libraries(*programs: Path | str) -> set[str]:
    """Files that the loader maps for these programs, itself included."""
    said = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"(/\S+) \(0x", said))


@pytest.fixture
def root(native: Path, tmp_path: Path) -> Path:
    """A minimal root with a shell, the rank and its NCCL, without the hook."""
    path = tmp_path / "root"
    for name in ("proc", "dev/shm", "tmp"):
        (path / name).mkdir(parents=True)
    (path / "dev/null").touch()
    copy_into(path, *PROGRAMS, native / "rank", native / "libnccl.so.2")
    copy_into(path, *libraries(*PROGRAMS, native / "rank"))
    return path


@pytest.fixture
def containers(rig: Rig, native: Path) -> Iterator[Rig]:
    """The rig with the container plugin before ours."""
    listed(rig, native / "container.so", native / "spank_greyhound.so")
    yield rig
    until(lambda: not [line for line in processes() if str(native) in line], "no process of ours is left")


def listed(rig: Rig, *plugins: Path) -> None:
    lines = [f"optional {path}" + f" python={rig.python}" * (path.name != "container.so") for path in plugins]
    rig.sandbox.layout.plugstack.write_text("\n".join(lines) + "\n")


def processes() -> list[str]:
    return subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout.splitlines()


class Stopper(threading.Thread):
    """Ends the rank, by a file, once the node process was started."""

    def __init__(self, rig: Rig, file: Path) -> None:
        super().__init__()
        self._rig, self._file = rig, file
        self.start()

    def run(self) -> None:
        try:
            until(self._rig.records, "the node process was started")
        finally:
            self._file.touch()


def greyhound_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if "greyhound" in line]


def test_a_ring_in_a_dev_shm_of_the_task_s_own_starts_the_node_process(containers: Rig, native, tmp_path):
    stopper = Stopper(containers, tmp_path / "stop")
    done = containers.srun("--greyhound=on", str(native / "rank"), f"{tmp_path}/stop", env={"CONTAINER": "/dev/shm"})
    stopper.join()
    assert (done.returncode, greyhound_lines(done.stderr)) == (DONE, [])
    assert len(containers.records()) == 1


def test_the_same_where_the_command_makes_it(containers: Rig, native, tmp_path):
    script = f"mount -t tmpfs tmpfs /dev/shm; exec {native}/rank {tmp_path}/stop"
    stopper = Stopper(containers, tmp_path / "stop")
    done = containers.srun("--greyhound=on", "unshare", "-m", "sh", "-ec", script)
    stopper.join()
    assert (done.returncode, greyhound_lines(done.stderr)) == (DONE, [])
    assert len(containers.records()) == 1


def test_a_root_that_has_the_hook_is_watched(containers: Rig, native, root):
    """Even where the image brings an LD_PRELOAD of its own, which stays."""
    copy_into(root, native / HOOK)
    other = link(root / "libother.so", "-shared", "-fPIC", "-x", "c", "/dev/null")
    stopper = Stopper(containers, root / "stop")
    preload = {"CONTAINER": str(root), "CONTAINER_PRELOAD": f"/{other.name}"}
    done = containers.srun("-N1", "-n2", "--greyhound=on", str(native / "rank"), "/stop", env=preload)
    stopper.join()
    assert (done.returncode, greyhound_lines(done.stderr)) == (DONE, [])
    assert done.stdout.splitlines() == [f"LD_PRELOAD=/{other.name}"] * 2  # the hook took itself out
    assert len(containers.records()) == 1


def refused(rig: Rig, native: Path, root: Path, *reasons: str) -> None:
    """The job runs in its root without our preload, and one line says why."""
    environment = {"CONTAINER": str(root), "LD_PRELOAD": "/lib/none.so"}
    script = "echo ran $LD_PRELOAD; exit 3"
    done = rig.srun("-N1", "-n2", "--greyhound=on", "/bin/sh", "-c", script, env=environment)
    assert (done.returncode, done.stdout) == (3, "ran /lib/none.so\n" * 2)
    said = [line for line in greyhound_lines(done.stderr) if "/lib/none.so" not in line]
    assert len(said) == 1, done.stderr
    assert said[0].startswith("greyhound: unmonitored: node 0: the tasks have a root of their own (a container): ")
    for reason in reasons:
        assert reason in said[0]


def test_a_root_without_the_hook_is_told_how_to_mount_it(containers: Rig, native, root):
    refused(containers, native, root, f"{native}/{HOOK} is not there", f"--container-mounts={native}:{native}:ro")


def test_a_root_of_another_architecture(containers: Rig, native, root):
    copy_into(root, native / HOOK)
    hook = Path(f"{root}{native}/{HOOK}")
    content = bytearray(hook.read_bytes())
    content[18:20] = (8).to_bytes(2, "little")  # e_machine: MIPS
    hook.write_bytes(content)
    refused(containers, native, root, "its loader refuses the hook", "cannot be preloaded")


def versioned(folder: Path, version: str) -> Path:
    """libold.so with one function of that version, as a libc has them."""
    folder.mkdir()
    (folder / "map").write_text(f"{version} {{ global: old; local: *; }};\n")
    (folder / "old.c").write_text("int old(void) { return 0; }\n")
    return link(
        folder / "libold.so", "-shared", "-fPIC", f"-Wl,--version-script,{folder}/map", "-Wl,-soname,libold.so",
        folder / "old.c",
    )  # fmt: skip


def test_a_root_whose_libc_is_too_old_is_not_killed(containers: Rig, native, root, tmp_path):
    """A version that is missing there ends every process that has the preload."""
    new, old = versioned(tmp_path / "new", "OLD_2"), versioned(tmp_path / "old", "OLD_1")
    (tmp_path / "hook.c").write_text("int old(void); int used(void) { return old(); }\n")
    hook = Path(f"{root}{native}/{HOOK}")
    copy_into(root, native / HOOK)
    link(hook, "-shared", "-fPIC", tmp_path / "hook.c", new, "-Wl,-rpath,/lib")
    copy_into(root, old)
    shutil.copy(old, root / "lib" / "libold.so")
    refused(containers, native, root, "its loader refuses the hook", "OLD_2")


def test_a_root_of_static_programs_without_our_loader(containers: Rig, native, root, tmp_path):
    copy_into(root, native / HOOK)
    shutil.rmtree(root / "lib64")
    (tmp_path / "true.c").write_text("int main(void) { return 0; }\n")
    (tmp_path / "sh.c").write_text(
        "#include <stdio.h>\n#include <stdlib.h>\n"
        'int main(void) { printf("ran %s\\n", getenv("LD_PRELOAD")); return 3; }\n'
    )
    for name in ("true", "sh"):
        link(root / "bin" / name, "-static", tmp_path / f"{name}.c")
    refused(containers, native, root, "another libc or architecture")


def test_listed_before_the_container_plugin_the_job_still_runs(containers: Rig, native, root):
    """Then we come too early to see the task's root: its loader says for itself that it lacks the hook."""
    listed(containers, native / "spank_greyhound.so", native / "container.so")
    done = containers.srun("--greyhound=on", "/bin/sh", "-c", "echo ran; exit 3", env={"CONTAINER": str(root)})
    assert (done.returncode, done.stdout) == (3, "ran\n")
    assert "cannot be preloaded" in done.stderr
