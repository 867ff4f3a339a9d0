"""The build: which spank.h it says it used, which symbols the plugin needs and gives, where it installs."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.spank.rig import SPANK, make

# What spank.h of Slurm 22.05, the oldest supported release, declares.
OLDEST_SLURM = {
    "slurm_debug", "slurm_debug2", "slurm_debug3", "slurm_error", "slurm_info", "slurm_spank_log", "slurm_verbose",
    "spank_context", "spank_get_item", "spank_getenv", "spank_job_control_getenv", "spank_job_control_setenv",
    "spank_job_control_unsetenv", "spank_option_getopt", "spank_option_register", "spank_remote", "spank_setenv",
    "spank_strerror", "spank_symbol_supported", "spank_unsetenv",
}  # fmt: skip

CALLBACKS = {"init", "init_post_opt", "local_user_init", "user_init", "task_init", "task_exit", "exit"}

# A Slurm for the loader alone: every symbol that the oldest release has, and nothing else.
LOADER = """
#include <dlfcn.h>
#include <stdio.h>
%s
int main(int argc, char **argv) {
  void *handle = dlopen(argv[argc - 1], RTLD_NOW);
  if (!handle) puts(dlerror());
  return handle ? 0 : 1;
}
"""


def has_headers() -> bool:
    return subprocess.run(["make", "-C", SPANK, "headers"], capture_output=True, check=False).returncode == 0


needs_headers = pytest.mark.skipif(not has_headers(), reason="no Slurm headers (libslurm-dev)")


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("native")
    make("plugin", f"OUT={out}")
    return out / "spank_greyhound.so"


def symbols(plugin: Path, which: str) -> set[str]:
    listing = subprocess.run(["nm", "-D", which, plugin], check=True, capture_output=True, text=True).stdout
    return {line.split()[-1].split("@")[0] for line in listing.splitlines()}


@needs_headers
def test_the_build_names_the_header_and_the_release():
    assert re.search(r"^spank\.h: /\S+/slurm/spank\.h \(Slurm \d\d\.\d\d\.\d+\)$", make("headers"), re.MULTILINE)


def test_a_missing_header_is_explained_with_the_mend(tmp_path):
    command = ["make", "-C", SPANK, "plugin", f"SLURM_INCLUDE={tmp_path}", f"OUT={tmp_path}/out"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    for words in (str(tmp_path), "libslurm-dev", "slurm-devel", "SLURM_INCLUDE=DIR"):
        assert words in done.stderr
    assert not (tmp_path / "out").exists()


@needs_headers
def test_another_slurm_release_rebuilds_the_plugin_and_the_same_one_does_not(tmp_path):
    out = f"OUT={tmp_path}/out"
    assert "spank_greyhound.so" in make("plugin", out)
    assert "spank_greyhound.so" not in make("plugin", out)
    found = re.search(r"^spank\.h: (\S+)/slurm/spank\.h", make("headers"), re.MULTILINE)
    newer = tmp_path / "include" / "slurm"
    shutil.copytree(Path(found[1]) / "slurm", newer)
    header = newer / "slurm_version.h"
    text, count = re.subn(r"(SLURM_VERSION_NUMBER) 0x\w+", r"\1 0x630b02", header.read_text())
    assert count == 1
    header.write_text(text)
    output = make("plugin", out, f"SLURM_INCLUDE={tmp_path}/include")
    assert f"{newer}/spank.h (Slurm 99.11.2)" in output
    assert "loads into Slurm 99.11 only" in output
    assert "spank_greyhound.so" in output


@needs_headers
def test_only_the_plugin_s_own_names_are_exported(plugin):
    names = {f"slurm_spank_{name}" for name in CALLBACKS}
    assert symbols(plugin, "--defined-only") == names | {
        "plugin_name", "plugin_type", "plugin_version", "spank_plugin_version"
    }  # fmt: skip


@needs_headers
def test_nothing_is_needed_that_the_oldest_release_lacks(plugin, tmp_path):
    needed = {name for name in symbols(plugin, "--undefined-only") if re.match(r"(slurm|spank)_", name)}
    assert needed <= OLDEST_SLURM
    source = LOADER % "\n".join(f"void {name}(void) {{}}" for name in sorted(OLDEST_SLURM))
    subprocess.run(["cc", "-rdynamic", "-x", "c", "-", "-o", tmp_path / "loader"], input=source, text=True, check=True)
    done = subprocess.run([tmp_path / "loader", plugin], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@needs_headers
def test_install_replaces_by_rename_and_may_be_repeated(tmp_path):
    arguments = ("install", f"OUT={tmp_path}/out", f"PREFIX={tmp_path}/prefix")
    assert f"optional {tmp_path}/prefix/lib/greyhound/spank_greyhound.so prefix={tmp_path}/prefix" in make(*arguments)
    library = tmp_path / "prefix" / "lib" / "greyhound"
    with (library / "spank_greyhound.so").open("rb") as held:
        make(*arguments)
        assert os.fstat(held.fileno()).st_ino != (library / "spank_greyhound.so").stat().st_ino
    installed = ["greyhound_waiter", "libgreyhound_hook.so", "spank_greyhound.so", "spank_greyhound_stub.so"]
    assert sorted(path.name for path in library.iterdir()) == installed


def test_the_waiter_needs_no_slurm_header_and_libc_alone(tmp_path):
    make("waiter", f"OUT={tmp_path}", f"SLURM_INCLUDE={tmp_path}/none")
    dynamic = subprocess.run(
        ["readelf", "-d", tmp_path / "greyhound_waiter"], check=True, capture_output=True, text=True
    )
    assert re.findall(r"NEEDED.*\[(.*)\]", dynamic.stdout) == ["libc.so.6"]
