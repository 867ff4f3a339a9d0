"""PCI addresses and paths, and the line of a repair ticket."""

import pytest

from greyhound.control.fields import TEXT_LIMIT
from greyhound.localize.identity import (
    Gpu,
    Port,
    common_bridges,
    identify,
    nearest,
    normal_bus,
    pci_chain,
)

ROOT = "/sys/devices/pci0000:60"
SWITCH = f"{ROOT}/0000:60:01.0/0000:61:00.0"
GPU = f"{SWITCH}/0000:62:00.0/0000:65:00.0"
NEAR = Port("mlx5_0/1", f"{SWITCH}/0000:62:04.0/0000:66:00.0")
SAME_ROOT = Port("mlx5_1/1", f"{ROOT}/0000:60:05.0/0000:70:00.0")
FAR = Port("mlx5_2/1", "/sys/devices/pci0000:a0/0000:a0:01.0/0000:a1:00.0")


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("00000000:65:00.0", "0000:65:00.0"),
        ("0000:B3:00.0", "0000:b3:00.0"),
        ("65:00.0", "0000:65:00.0"),
        ("00010000:01:00.0", "10000:01:00.0"),
        ("", ""),
        ("GPU-1234", "GPU-1234"),
    ],
)
def test_buses_are_written_as_sysfs_does(text, normal):
    assert normal_bus(text) == normal_bus(normal_bus(text)) == normal


def test_chain_and_common_bridges():
    assert pci_chain(f"{GPU}/infiniband/mlx5_0") == (
        "pci0000:60", "0000:60:01.0", "0000:61:00.0", "0000:62:00.0", "0000:65:00.0"
    )  # fmt: skip
    assert [common_bridges(GPU, port.path) for port in (NEAR, SAME_ROOT, FAR)] == [3, 1, 0]
    assert pci_chain("/sys/devices/virtual/net/lo") == ()


def test_the_nearest_port_shares_most_bridges():
    assert nearest(GPU, [FAR, SAME_ROOT, NEAR]) == ("mlx5_0/1",)
    assert nearest(GPU, [FAR, SAME_ROOT]) == ("mlx5_1/1",)
    assert nearest(GPU, [FAR]) == nearest(GPU, []) == nearest("", [NEAR]) == ()
    twin = Port("mlx5_9/1", NEAR.path.replace("66", "67"))
    assert nearest(GPU, [twin, NEAR]) == ("mlx5_0/1", "mlx5_9/1")


def test_a_ticket_names_all_that_is_known():
    gpus = {"0000:65:00.0": Gpu("NVIDIA H200", "GPU-17", "1650923", ("MIG-5",))}
    found = identify("n1", "00000000:65:00.0", gpus, {"0000:65:00.0": GPU}, [NEAR, FAR], "leaf3")
    assert found.text() == (
        "n1: GPU 0000:65:00.0 (NVIDIA H200), serial 1650923, GPU-17, MIG MIG-5, NIC mlx5_0/1, leaf switch leaf3"
    )


def test_what_is_not_known_is_not_available():
    assert identify("n1", "", {}, {}, []).text() == ("n1: GPU n/a (n/a), serial n/a, n/a, NIC n/a, leaf switch n/a")


def test_of_very_many_equally_near_ports_a_few_are_named():
    ports = [Port(f"rocep101s0f0v{number}/1", NEAR.path) for number in range(64)]
    found = identify("n1", "0000:65:00.0", {}, {"0000:65:00.0": GPU}, ports)
    assert found.nic.endswith(", rocep101s0f0v10/1, rocep101s0f0v11/1 and 60 more") and len(found.nic) < TEXT_LIMIT
