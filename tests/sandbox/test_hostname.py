"""Hosts whose own name is no loopback name: containers, many cloud images."""

import os
import subprocess
import sys

import pytest

from greyhound.sandbox import hostname
from greyhound.sandbox.errors import SandboxError


@pytest.mark.parametrize(
    ("found", "loopback"),
    [([], False), (["127.0.0.1"], True), (["127.0.1.1", "::1"], True), (["127.0.0.1", "10.0.0.5"], False)],
)
def test_only_loopback_addresses_will_do(found, loopback):
    assert hostname.is_loopback(found) is loopback


def test_root_renames_and_others_are_told_the_mend(monkeypatch):
    monkeypatch.setattr(hostname, "addresses", lambda name: ["10.0.0.5"])
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert hostname.preparation() is hostname.become_localhost
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(SandboxError, match=r"10\.0\.0\.5.*add '127\.0\.1\.1"):
        hostname.preparation()


@pytest.mark.cluster
@pytest.mark.skipif(os.getuid() != 0, reason="a UTS namespace needs root")
def test_a_cluster_comes_up_on_a_host_whose_name_nobody_knows():
    name = f"noname-{os.getpid()}"
    greyhound = f"{sys.executable} -m greyhound sandbox"
    script = f"""hostname nowhere.invalid
        {greyhound} up --name {name} --nodes 2 || exit 1
        {greyhound} run --name {name} -- srun -N2 hostname; code=$?
        {greyhound} down --name {name} && exit $code"""
    done = subprocess.run(["unshare", "--uts", "sh", "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines().count("localhost") == 2
