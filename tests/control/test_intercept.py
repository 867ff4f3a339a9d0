"""Processes that use NCCL past the hook are found in /proc, after a while."""

import pytest

from greyhound.control.intercept import PATIENCE_S, InterceptCheck, nccl_processes


@pytest.fixture
def proc(tmp_path):
    root = tmp_path / "proc"
    root.mkdir()
    (root / "self").mkdir()
    return root


def process(proc, pid, step_dir, maps="7f00 r-xp /usr/lib/libnccl.so.2\n", threads=("python", "NCCL Service 0")):
    folder = proc / str(pid)
    (folder / "task").mkdir(parents=True)
    (folder / "environ").write_bytes(b"A=1\0GREYHOUND_DIR=" + str(step_dir).encode() + b"\0B=2\0")
    (folder / "maps").write_text(maps)
    for number, name in enumerate(threads):
        (folder / "task" / str(number)).mkdir()
        (folder / "task" / str(number) / "comm").write_text(name + "\n")


def test_only_processes_of_the_step_with_nccl_at_work_count(proc, tmp_path):
    ours = tmp_path / "greyhound-0-1.0.0.n0"
    process(proc, 10, ours)
    process(proc, 11, tmp_path / "greyhound-0-1.0.0.n01")
    process(proc, 12, ours, maps="7f00 r-xp /usr/lib/libc.so.6\n")
    process(proc, 13, ours, threads=("python",))
    (proc / "14").mkdir()
    assert nccl_processes(ours, proc) == {10}
    assert nccl_processes(ours, proc, uid=12345) == set()


def test_patience(proc, tmp_path):
    check = InterceptCheck(tmp_path, proc)
    assert not check.missed(0.0)
    process(proc, 10, tmp_path)
    assert not check.missed(100.0)
    assert not check.missed(100.0 + PATIENCE_S - 1)
    assert check.missed(100.0 + PATIENCE_S)
