"""Where a node's GPUs and network ports are on its PCI buses, from sysfs, and on which switch it hangs, from Slurm."""

import os
from collections.abc import Mapping
from pathlib import Path

from greyhound.control.evidence_files import MOST_NAMES, Target, listed, read_text
from greyhound.localize.cause_evidence import Place, Row
from greyhound.localize.identity import NOT_KNOWN, Port, normal_bus
from greyhound.slurm.client import CommandClient
from greyhound.slurm.topology import read_leaves

ROUNDS = 60  # between two looks: adapters come and go seldom


class Hardware:
    """A source without figures: it runs beside the others since sysfs of a sick device may block."""

    name = "pci"

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._round = 0
        self._seen: set[str] = set()
        self.paths: Mapping[str, str] = {}
        """Device paths of the ranks' GPUs by normal bus id; replaced as a whole, like `ports`."""
        self.ports: tuple[Port, ...] = ()
        self.switches: Mapping[str, str] = {}
        """Leaf switch by node, as far as the cluster's topology tells."""

    def read(self, targets: tuple[Target, ...]) -> tuple[Mapping[Place, Row], Mapping[str, str]]:
        """Look where the ranks' GPUs and all ports are, if that isn't known."""
        if self._round == 0:
            self.switches = read_leaves(CommandClient())
        buses = {normal_bus(target.bus) for target in targets if target.bus}
        if self._round % ROUNDS == 0 or not buses <= self._seen:
            self._seen = buses
            self.paths = gpu_paths(self._root, buses)
            self.ports = network_ports(self._root)
        self._round += 1
        return {}, {}


def gpu_paths(root: Path, buses: set[str]) -> dict[str, str]:
    """Device paths in sysfs; buses that aren't there (a stand-in, another namespace) are left out."""
    devices = root / "sys/bus/pci/devices"
    return {bus: os.path.realpath(devices / bus) for bus in sorted(buses)[:MOST_NAMES] if (devices / bus).exists()}


def network_ports(root: Path) -> tuple[Port, ...]:
    """RDMA ports; where there is none, network interfaces that are PCI devices."""
    found = []
    devices = root / "sys/class/infiniband"
    for device in listed(devices):
        path = os.path.realpath(devices / device / "device")
        guid = read_text(devices / device / "node_guid").strip() or NOT_KNOWN
        found += [Port(f"{device}/{port}", path, guid) for port in listed(devices / device / "ports")]
    if not found:
        interfaces = root / "sys/class/net"
        found = [
            Port(name, os.path.realpath(interfaces / name / "device"))
            for name in listed(interfaces)
            if (interfaces / name / "device").exists()
        ]
    return tuple(found[:MOST_NAMES])
